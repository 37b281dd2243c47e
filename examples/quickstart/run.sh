#!/usr/bin/env bash
# Trains a small MUSE model on real German-English sentences and translates a held-out test set with it.
#
#   bash examples/quickstart/run.sh
#
# What happens: set-up if needed; 72,811 bundled sentence pairs from Tatoeba (see data/ATTRIBUTION.txt) are tokenised and
# split into subwords; muse_tiny (4+4 layers, width 128, 1.8 million parameters) is trained for UPDATES updates of at most
# MAX_TOKENS tokens; the last checkpoints are averaged; 1,000 unseen sentences are translated by beam search (beam 5),
# scored, and ten of them shown. A GPU is used when there is one.
#
# Hardware: 2 CPU cores and 1 GB of memory are enough. Six minutes after set-up if the cores do nothing else.
# Score to expect: BLEU 49 to 58 (measured 53.4 and 53.8, see README.md); the exit code is 1 if it is outside.
# Safe to run again: finished steps are skipped, an interrupted training continues from its last checkpoint.
#
#   RUN_DIR=...     where everything is written (default: runs/quickstart in the repository)
#   FAST_TRIAL=1    or TRIAL=1: the same steps in a minute with a few sentences and updates, to see that all of it works
#   SKIP_SETUP=1    use the python on the PATH as it is
#   SUBWORDS=sentencepiece   or sentencepiece:bpe, in place of BPE by subword-nmt: on the untokenised text; MERGES pieces, no verdict
#   SEED, UPDATES, MAX_TOKENS, MERGES, LR, DROPOUT, ARCH   another training, without a verdict on its score
# Further arguments go to fairseq-train, e.g.: RUN_DIR=runs/wide bash examples/quickstart/run.sh --encoder-embed-dim 256
set -euo pipefail
FAST_TRIAL=${FAST_TRIAL:-${TRIAL:-}} # the other recipes call it TRIAL

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)

recipe=quickstart
# For check_settings, exists, choose_threads, keep_memory and step.
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
check_settings SEED=whole UPDATES=count MAX_TOKENS=count MERGES=count LR=positive DROPOUT=share 'FAST_TRIAL=0|1' 'TRIAL=0|1' 'SKIP_SETUP=0|1' \
  'SUBWORDS=bpe|sentencepiece|sentencepiece:unigram|sentencepiece:bpe'

# shellcheck source=scripts/environment.sh
. "$root/scripts/environment.sh"
set_up_repository
export PYTHONUNBUFFERED=1

expected_bleu=(49 58)
seed=1 lr=0.004 dropout=0 arch=muse_tiny subwords=
if [[ "${FAST_TRIAL:-0}" == 1 ]]; then
  run_dir=${RUN_DIR:-$root/runs/quickstart-trial}
  updates=4 max_tokens=256 merges=200 limit=60 save_interval=2 warmup=2 averaged=2
else
  run_dir=${RUN_DIR:-$root/runs/quickstart}
  updates=1500 max_tokens=1024 merges=2500 limit=0 save_interval=100 warmup=300 averaged=3
fi
describe_settings() { # in one line, which settings.txt keeps
  printf '%s' "seed=$seed updates=$updates max_tokens=$max_tokens merges=$merges lr=$lr dropout=$dropout arch=$arch limit=$limit" \
    "${subwords:+ subwords=$subwords}"
}
defaults=$(describe_settings)
seed=${SEED:-$seed} updates=${UPDATES:-$updates} max_tokens=${MAX_TOKENS:-$max_tokens} merges=${MERGES:-$merges}
((updates >= averaged)) || fail "UPDATES must be at least $averaged, for as many checkpoints are averaged, but is $updates."
if ((updates < averaged * save_interval)); then save_interval=$((updates / averaged)); fi
lr=${LR:-$lr} dropout=${DROPOUT:-$dropout} arch=${ARCH:-$arch}
case "${SUBWORDS:-bpe}" in
  bpe) ;;
  sentencepiece | sentencepiece:unigram) subwords=sentencepiece ;;
  *) subwords=$SUBWORDS ;;
esac
settings=$(describe_settings)

verdict=(--expect "${expected_bleu[@]}")
if [[ "$settings" != "$defaults" || $# -gt 0 || "${FAST_TRIAL:-0}" == 1 ]]; then verdict=(); fi

mkdir -p "$run_dir"
run_dir=$(cd "$run_dir" && pwd -P)
wanted="$settings extra=$*"
if exists "$run_dir"/.*.done && [[ -f "$run_dir/settings.txt" && "$(<"$run_dir/settings.txt")" != "$wanted" ]]; then
  printf 'quickstart: error: %s was made with other settings:\n  %s\nbut now they are\n  %s\n' \
    "$run_dir" "$(<"$run_dir/settings.txt")" "$wanted" >&2
  echo "delete that folder or choose another one by RUN_DIR=..." >&2
  exit 2
fi
printf '%s\n' "$wanted" >"$run_dir/settings.txt"

choose_threads 4 # matrices of this size gain nothing from more
device=(--cpu)
if python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then device=(); else keep_memory; fi

prepare() {
  local options=()
  if [[ "$limit" != 0 ]]; then options=(--limit "$limit"); fi
  if [[ -n "$subwords" ]]; then options+=(--subwords "$subwords"); fi
  python "$here/prepare_data.py" --bundle "$here/data" --output "$run_dir/text" \
    --pipeline "$run_dir/model" --merges "$merges" "${options[@]}"
}

binarise() {
  local dictionary=()
  if [[ -f "$run_dir/text/pieces.txt" ]]; then dictionary=(--srcdict "$run_dir/text/pieces.txt"); fi
  rm -rf "${run_dir:?}/bin"
  fairseq-preprocess --source-lang de --target-lang en --joined-dictionary --workers 2 \
    --trainpref "$run_dir/text/train" --validpref "$run_dir/text/valid" --testpref "$run_dir/text/test" \
    --destdir "$run_dir/bin" "${dictionary[@]}"
  cp "$run_dir/bin/dict.de.txt" "$run_dir/bin/dict.en.txt" "$run_dir/model/"
}

train() { # its lines on progress are shown
  local command=(fairseq-train "$run_dir/bin" --user-dir "$root/muse_plugin" --arch "$arch"
    --source-lang de --target-lang en --share-all-embeddings
    --dropout "$dropout" --weight-dropout "$dropout" --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates "$warmup"
    --total-num-update "$updates" --max-update "$updates" --max-tokens "$max_tokens"
    --save-dir "$run_dir/checkpoints" --save-interval-updates "$save_interval" --keep-interval-updates "$averaged"
    --no-epoch-checkpoints --seed "$seed" --log-format simple --log-interval 100 --num-workers 0
    "${device[@]}" "$@")
  printf '%q ' "${command[@]}" >"$run_dir/train-command.txt"
  "${command[@]}" 2>&1 | tee >(grep --line-buffered -E ' \| (train_inner|valid) \| ' >&3 || cat >/dev/null)
}

average() {
  python -m muse_plugin.cli average --inputs "$run_dir/checkpoints" \
    --num-update-checkpoints "$averaged" --output "$run_dir/model/checkpoint_avg.pt"
}

generate() {
  fairseq-generate "$run_dir/bin" --user-dir "$root/muse_plugin" --path "$run_dir/model/checkpoint_avg.pt" \
    --gen-subset test --beam 5 --batch-size 100 --results-path "$run_dir/generated" "${device[@]}"
}

node=0 # of step
step "$run_dir" prepare "tokenise and learn subwords" prepare
step "$run_dir" binarise "binarise (fairseq-preprocess)" binarise
step "$run_dir" train "train $arch (fairseq-train, $updates updates)" train "$@"
step "$run_dir" average "average the last $averaged checkpoints (muse-plugin average)" average
step "$run_dir" generate "translate the test set (fairseq-generate --beam 5)" generate
python "$here/report.py" --run-dir "$run_dir" "${verdict[@]}"
