"""The data folders that the commands of README and docs read are folders that something makes."""

import re

from support.helpers import REPOSITORY


def test_data_folders_are_made_by_a_recipe_or_a_command_of_the_pages():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    read = {
        folder
        for block in blocks
        for folder in re.findall(r"^fairseq-(?:train|generate) ([\w/]\S*)", block, re.MULTILINE)
    }
    made = {folder for block in blocks for folder in re.findall(r"--output (\S+)", block)}
    recipes = {f"runs/{path.parent.name}/data/bin" for path in (REPOSITORY / "examples").glob("*/prepare.sh")}
    assert read - made - recipes == set()
    assert "runs/iwslt14_de_en/data/bin" in read
