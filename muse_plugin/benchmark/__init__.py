"""What ``muse-plugin benchmark`` measures: time and memory, against fairseq's models and the plain form of our own."""
