"""Stands where fairseq's compiled BLEU is missing, and says what computes the score instead.

With the plugin this file is never imported: ``fairseq_repairs/missing_extensions`` counts n-grams in Python.
"""

raise SystemExit(
    "fairseq's own BLEU needs its compiled extension libbleu, which is not installed; call fairseq-score with "
    "--sacrebleu, use muse-plugin evaluate, or name the plugin by --user-dir."
)
