"""Training losses as fairseq sees them, chosen with ``--criterion``; importing this registers them."""

from muse_plugin.criterions import (  # noqa: F401  (for their registration)
    fused_label_smoothed_cross_entropy,
    label_smoothed_cross_entropy_with_simcut,
    sentence_classification,
    sentence_regression,
    sequence_tagging,
)
