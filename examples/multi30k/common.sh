# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe multi30k "muse muse_simple transformer plain_transformer dynamicconv" 'TARGET_LANG=de|fr' \
  'BIDIRECTIONAL=0|pretrain|finetune' 'ATTENTION=none|multi-scale|distance|both|multi-scale-layers|distance-layers' \
  'PROFILE=published|cpu' "ROW=help $(list_rows)"
choose_row

target=${TARGET_LANG:-de}
data=$work_dir/en-$target
# fairseq calls them test, test1 and test2
tests=(test_2016_flickr test_2017_flickr test_2017_mscoco)

# What the encoder's self-attention may look at: scales for sentences of a dozen words and four heads.
attention=${ATTENTION:-none}
scales=(--encoder-attention-scales '3,N/4,N/2,all')
case "$attention" in
  none) attention_flags=() ;;
  multi-scale) attention_flags=(--encoder-attention-bias 'multi-scale' "${scales[@]}") ;;
  distance) attention_flags=(--encoder-attention-bias 'distance,bidirectional-split') ;;
  both) attention_flags=(--encoder-attention-bias 'multi-scale,distance,bidirectional-split' "${scales[@]}") ;;
  # Layers of the two papers instead of masks, in the sizes of multi_scale_encoder_tiny and distance_encoder_tiny.
  multi-scale-layers)
    attention_flags=(--encoder-layer-type multi_scale --encoder-attention-bias 'multi-scale' --encoder-attention-scales '1,3,N/4,N/2,all'
      --encoder-attention-heads 8 --encoder-head-dim 32 --encoder-positions none)
    ;;
  distance-layers) attention_flags=(--encoder-layer-type distance --encoder-layers 2 --encoder-ffn-embed-dim 64 --encoder-positions none) ;;
esac
attention_settings=()
if [[ "$attention" != none ]]; then attention_settings=("attention=$attention"); fi
if [[ "$attention" != none && ("$model" == transformer || "$model" == dynamicconv) ]]; then
  fail "ATTENTION=$attention needs a model of this plugin, but MODEL is $model; use MODEL=plain_transformer."
fi
if [[ "$attention" != none && -n "$row" ]]; then fail "ROW=$row has its own attention, but ATTENTION is $attention; set one of them."; fi

usual_data=(merges=10000) # others are on the record of a run
text_flags=(--normalize --lower-case) # what corpus.py tokenize makes of a raw sentence with these flags is as the text of the files
choose_criterion "$data"
choose_directions "${row:-$model}$([[ "$attention" == none ]] || printf -- '-%s' "$attention")" "en-$target-" "$data/bin"
direction_settings=()
if [[ "$bidirectional" != 0 ]]; then direction_settings=("bidirectional=$bidirectional"); fi
