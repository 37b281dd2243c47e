"""Training losses as fairseq sees them, chosen with ``--criterion``; importing this registers them."""

from muse_plugin.criterions import label_smoothed_cross_entropy_with_simcut  # noqa: F401  (for its registration)
