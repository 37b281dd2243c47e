"""The flags of ``muse-plugin average``."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin average`` on ``parser``."""
    parser.description = (
        "Write one checkpoint whose parameters are the mean of several checkpoints of the same training run."
    )
    parser.add_argument(
        "--inputs",
        required=True,
        nargs="+",
        metavar="PATH",
        help="checkpoint files; or, together with one of the --num-*-checkpoints flags, one folder of checkpoints",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="where the averaged checkpoint is written")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--num-epoch-checkpoints",
        type=int,
        metavar="N",
        help="average the last N epoch checkpoints of the folder (checkpoint12.pt)",
    )
    which.add_argument(
        "--num-update-checkpoints",
        type=int,
        metavar="N",
        help="average the last N checkpoints saved by number of updates (checkpoint_3_12000.pt)",
    )
    which.add_argument(
        "--num-best-checkpoints",
        type=int,
        metavar="N",
        help="average the N best checkpoints kept by --keep-best-checkpoints (checkpoint.best_loss_4.1230.pt)",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=int,
        metavar="M",
        help="leave out checkpoints after epoch M (with --num-epoch-checkpoints) or after update M "
        "(with --num-update-checkpoints); M itself may be used",
    )
