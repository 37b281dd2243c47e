"""The flags of the sub-commands, by the standard library alone: ``--help`` needs neither torch nor fairseq."""
