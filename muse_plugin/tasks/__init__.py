"""Tasks as fairseq sees them: what is read from disk, and how it becomes batches."""
