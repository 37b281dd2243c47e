"""Gives ``--task translation_from_pretrained_bart`` its settings under the name that it reads them by."""

from operator import attrgetter

from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from muse_plugin.fairseq_repairs.repair import Repair


def _apply() -> None:
    TranslationFromPretrainedBARTTask.args = property(attrgetter("cfg"))


REPAIR = Repair(
    why="translation_from_pretrained_bart reads its settings from self.args, which tasks no longer have: every command "
    "ends with an AttributeError (fairseq issue 3169)",
    remedy=_apply,
)
