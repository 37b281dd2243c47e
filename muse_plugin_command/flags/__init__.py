"""The flags of each sub-command, in a file of its name; they need only the standard library, so ``--help`` is quick."""
