"""Training text that is segmented again for every epoch; ``tasks/translation_with_bpe_dropout.py`` puts it together.

``word_segmentation`` draws segmentations, ``training_text`` checks and divides the files, ``background`` runs the
processes, ``resegmented_pairs`` is the data set.
"""
