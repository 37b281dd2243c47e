"""Stands in for PyTorch where a recipe asks how many GPUs there are."""


class cuda:  # noqa: N801  (PyTorch's name)
    """Eight of them."""

    @staticmethod
    def device_count() -> int:
        return 8
