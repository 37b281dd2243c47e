"""What the tasks of sentences share: columns on disk, batches, dictionaries."""
