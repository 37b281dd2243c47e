"""MUSE (arXiv:1911.09483) and its relatives as a fairseq plugin.

Importing this package, directly or through ``--user-dir muse_plugin``, registers its models once. It also makes the
installed fairseq usable on current Python and torch: see ``warning_filters`` (what is silenced and why),
``checkpoints/safe_loading`` (what a checkpoint may contain) and ``fairseq_repairs`` (what is fixed and why).
"""

__version__ = "0.3.0"

from muse_plugin import warning_filters

warning_filters.install()  # before fairseq is imported: some of the messages come from its import

with warning_filters.importing_fairseq():
    from muse_plugin import fairseq_repairs
from muse_plugin.checkpoints import safe_loading  # noqa: E402

safe_loading.register()
fairseq_repairs.apply()

from muse_plugin import criterions  # noqa: E402, F401  (imported for its registrations)
from muse_plugin.models import (  # noqa: E402, F401  (the same)
    directional_attention_network,
    distance_attention_network,
    head_wise_match_bert,
    head_wise_match_translation,
    presets,
)
from muse_plugin.tasks import head_wise_match as head_wise_match_task  # noqa: E402, F401  (the same)
from muse_plugin.tasks import (  # noqa: E402, F401  (the same)
    mirrored_summation,
    sentence_classification,
    sequence_tagging,
    text_pipeline_tokenizer,
    translation_with_bpe_dropout,
)
