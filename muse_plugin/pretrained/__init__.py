"""Readers of what others trained: word vectors, torch files, BERT."""
