"""The program of an exported folder, and its search, which needs neither torch nor fairseq."""
