"""Head-wise match on encoders of this package that are trained with the task; see ``head_wise_match.py``."""

from dataclasses import dataclass

from muse_plugin.contracts.flag import with_defaults
from muse_plugin.models.head_wise_match import HeadMatchFlags, HeadWiseMatchBase
from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerConfig, MultiScaleTransformerModel
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_transformer import SentenceTransformerConfig, SentenceTransformerModel


@dataclass
class HeadWiseMatchTransformerConfig(HeadMatchFlags, SentenceTransformerConfig):
    """Flags of head-wise match on the Transformer of the trunk."""


@register("head_wise_match_transformer", HeadWiseMatchTransformerConfig)
class HeadWiseMatchTransformerModel(HeadWiseMatchBase, SentenceTransformerModel):
    """Head-wise match on a Transformer that is trained with the task."""


@dataclass
@with_defaults(head_pooling="max")
class HeadWiseMatchMultiScaleConfig(HeadMatchFlags, MultiScaleTransformerConfig):
    """Flags of head-wise match on the Multi-Scale Transformer.

    The windows of most of its heads at the classification token hold little of the sentence.
    """


@register("head_wise_match_multi_scale", HeadWiseMatchMultiScaleConfig)
class HeadWiseMatchMultiScaleModel(HeadWiseMatchBase, MultiScaleTransformerModel):
    """Head-wise match on the Multi-Scale Transformer, trained with the task."""
