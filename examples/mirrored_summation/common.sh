# shellcheck shell=bash disable=SC2034,SC2154 # what is set here is used by the scripts that source it; they set the rest
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
known_models="hier_s deep_hier_s flex transformer"
start_sentence_recipe mirrored_summation "$known_models" 'PROFILE=published|cpu|cpu100' TERMS+=count
if [[ -z "${MODELS:-}${MODEL:-}" ]]; then read -r -a models <<<"$known_models"; fi
[[ "${BASELINE:-none}" == none ]] || fail "BASELINE is for texts of words, but here sentences are made of numbers; unset it."
[[ -z "$vectors" ]] || fail "WORD_VECTORS is for words, but here sentences are made of numbers; unset it."

profile=${PROFILE:-published}
if [[ "$trial" == 1 ]]; then profile=trial; fi
case "$profile" in
  published) train=200000 valid=2000 test=200000 length=100 vector=50 width=300 head=30 ffn=600 hidden=600 grid="10 20 30 40 50" ;;
  cpu) train=20000 valid=1000 test=5000 length=30 vector=10 width=100 head=10 ffn=200 hidden=200 grid="3 6 9 12 15" ;;
  cpu100) train=20000 valid=1000 test=5000 length=100 vector=10 width=100 head=10 ffn=200 hidden=200 grid="10 20 30 40 50" ;;
  trial) train=64 valid=16 test=32 length=20 vector=6 width=20 head=2 ffn=16 hidden=16 grid="4 8" ;;
esac
task_flags=(--task muse_mirrored_summation --length "$length" --vector-size "$vector"
  --train-sentences "$train" --valid-sentences "$valid" --test-sentences "$test")

read -r -a all_terms <<<"${TERMS:-$grid}"

choose_run() { # sets run for $terms, $model and $seed
  run=$work_dir/$profile/terms$terms/$model-seed$seed
}
