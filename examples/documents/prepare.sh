#!/usr/bin/env bash
# Documents in classes: fetch, bring into one form, divide, train word vectors on the training part, binarise. Minutes on one core.
#
#   bash examples/documents/prepare.sh
#
#   DATASET=r8       5,485 news stories of Reuters in 8 topics to train on, 2,189 to test on
#   DATASET=imdb     25,000 and 25,000 film reviews in two classes
#   DATASET=news     10,369 headlines in 4 categories to train on, 1,296 to validate, 1,297 to test on: a stand-in, see README.md
#   FOLDS=3          cross-validation: data for each of 3 folds of the training documents; every fold keeps the shares of the classes
#   FOLD_SEED=1      which documents are in which fold, or are held out for validation (r8, imdb: a tenth)
#   WORD2VEC=100     width of the word vectors; 0 for none, WORD_VECTORS=FILE for pretrained ones
#   RAW_DIR=...      has the files of downloads.tsv already, plain or as .gz: nothing is downloaded. For r8 also
#                    r8-test-all-terms.even.txt (every second test document) in place of the whole test file; for imdb also
#                    train.tsv and test.tsv (label, rating, number, text) in place of the archive
# Words seen fewer than 5 times are unknown: train.sh discards them. See examples/recipe/sentence_recipe.sh for WORK_DIR, TRIAL and the rest.
# Result: WORK_DIR/<data set>/data/bin, or WORK_DIR/<data set>/folds3/fold<n>/data/bin.
set -euo pipefail
# shellcheck source=examples/documents/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

fold_seed=${FOLD_SEED:-1}
text=$work_dir/$dataset/text

text_flags=()
case "$dataset" in
  r8)
    files=(r8-train-all-terms.txt r8-test-all-terms.txt) forms=(r8 r8) splits=(train test) source=whole
    if ! is_raw r8-test-all-terms.txt && is_raw r8-test-all-terms.even.txt; then
      files[1]=r8-test-all-terms.even.txt source=even
    fi
    ;;
  imdb)
    text_flags=(--tokenizer moses --lower-case)
    files=(aclImdb_v1.tar.gz aclImdb_v1.tar.gz) forms=(imdb-archive-train imdb-archive-test) splits=(train test) source=whole
    if is_raw train.tsv && is_raw test.tsv; then
      files=(train.tsv test.tsv) forms=(imdb imdb) source=tables
    fi
    ;;
  news)
    text_flags=(--tokenizer moses --lower-case)
    files=(train.txt valid.txt test.txt) forms=(news news news) splits=(train valid test) source=whole
    ;;
esac

download() {
  local name wanted=()
  for name in "${files[@]}"; do
    case "$name" in
      *.even.txt | *.tsv) ;; # checked to be there
      *) wanted+=("$name") ;;
    esac
  done
  if ((${#wanted[@]} > 0)); then fetch "${wanted[@]}"; fi
}

convert() { # text/SPLIT.txt: label, tab, text
  local i flags
  mkdir -p "$text"
  rm -f "$work_dir/$dataset"/folds*/.divide.done # folds of what was there before
  for i in "${!files[@]}"; do
    flags=()
    # A few documents of every class.
    if [[ "$trial" == 1 ]]; then flags=(--per-class "$([[ "${splits[i]}" == train ]] && echo 15 || echo 5)"); fi
    python "$here/documents.py" "${forms[i]}" "$raw_dir/${files[i]}" --output "$text/${splits[i]}.txt" "${flags[@]}" | tee >(cat >&3)
  done
}

divide() { # divide: folds<n>/fold<k>/text/train.txt and valid.txt, of everything but the test documents
  local inputs=("$text/train.txt")
  if [[ -f "$text/valid.txt" ]]; then inputs+=("$text/valid.txt"); fi
  python "$here/folds.py" "${inputs[@]}" --folds "$folds" --seed "$fold_seed" --output "$work_dir/$dataset/folds$folds" | tee >(cat >&3)
}

binarise() { # binarise FLAGS...: the data of $fold
  local flags=(--train "$text/train.txt") train_flags=(--threshold 5)
  if ((fold > 0)); then
    flags=(--train "${data%/data*}/text/train.txt" --valid "${data%/data*}/text/valid.txt")
  elif [[ -f "$text/valid.txt" ]]; then
    flags+=(--valid "$text/valid.txt")
  else
    flags+=(--valid-from-train 0.1 --seed "$fold_seed")
  fi
  if [[ "$trial" == 1 ]]; then train_flags=(--threshold 2); fi
  if ((word2vec > 0)); then train_flags+=(--word2vec "$word2vec" --word2vec-min-count "${train_flags[1]}"); fi
  prepare_text "$data" "${flags[@]}" --test "$text/test.txt" --empty skip "${text_flags[@]}" "${train_flags[@]}" "$@"
}

prepare() { # prepare FLAGS...: for $fold
  choose_data
  name_vectors
  keep_settings "$data" "dataset=$dataset" "source=$source" "folds=$folds" "fold=$fold" "fold_seed=$fold_seed" \
    "word2vec=$word2vec" "word_vectors=$vectors_name" "trial=$trial${*:+ flags=$*}"
  step "$data" text "binarise ${data#"$work_dir"/}" binarise "$@"
}

keep_settings "$text" "source=$source" "trial=$trial"
step "$text" download "fetch the files" download
step "$text" convert "one form (test set: $source)" convert
if ((folds > 1)); then
  keep_settings "$work_dir/$dataset/folds$folds" "fold_seed=$fold_seed"
  step "$work_dir/$dataset/folds$folds" divide "divide into $folds folds" divide
fi
for_each_fold prepare "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
