"""Gives ``--task translation_from_pretrained_bart`` its settings under the name that it reads them by."""

from typing import Any

from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(TranslationFromPretrainedBARTTask, "__init__")
    def initialise(original: Any, self: Any, args: Any, *rest: Any, **named: Any) -> None:
        original(self, args, *rest, **named)
        self.args = self.cfg


REPAIR = Repair(
    why="translation_from_pretrained_bart reads its settings from self.args, which tasks no longer have: every command "
    "ends with an AttributeError (fairseq issue 3169)",
    remedy=_apply,
)
