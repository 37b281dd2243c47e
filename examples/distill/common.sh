# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe distill "muse_simple transformer" 'DATASET=multi30k|tatoeba_de_en' 'TEACHER=muse|muse_simple|transformer' \
  'LAYERS=12-1|6-2|6-1' 'PROFILE=published|cpu' TEACHER_SEED=whole TEACHER_UPDATES=count SHARDS=count WIDTH=count BATCH=count
model=${MODEL:-muse_simple}
dataset=${DATASET:-multi30k}
teacher=${TEACHER:-transformer}
teacher_seed=${TEACHER_SEED:-1}
layers=${LAYERS:-6-2}

# The teacher is a model of another recipe, in the folders of that recipe.
teacher_dir=${TEACHER_DIR:-$work_dir/$dataset}
case "$dataset" in
  multi30k)
    source=en target=de test=test_2016_flickr width=${WIDTH:-128} teacher_data=$teacher_dir/en-de prefix=en-de-
    text_flags=(--normalize --lower-case)
    ;;
  tatoeba_de_en) source=de target=en test=test width=${WIDTH:-256} teacher_data=$teacher_dir/data prefix='' ;;
esac
choose_criterion "$teacher_data" # for name_suffix: SIMCUT, RDROP and BPE_DROPOUT are the teacher's
teacher_run=$teacher_dir/$prefix$teacher$name_suffix-seed$teacher_seed

data=$work_dir/data
data_settings=("dataset=$dataset" "teacher=$teacher$name_suffix" "teacher_seed=$teacher_seed" "trial=$trial")
if [[ "$bpe_dropout" != 0 ]]; then data_settings+=("bpe_dropout=$bpe_dropout"); fi
name=$model-$layers-width$width
run=$work_dir/students/$name-seed$seed
