"""Models as fairseq sees them: configs, presets, encoders and decoders around the modules."""
