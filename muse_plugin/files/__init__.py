"""Files and streams: atomic writing, lines in and out. Nothing here knows torch or fairseq."""
