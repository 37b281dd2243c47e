"""The papers' parts as plain PyTorch: branches, heads, kernels, masks, gates. Nothing here knows fairseq."""
