"""Pictures of the gallery stay small, and what they show stays."""

import io

import numpy
import pytest
from PIL import Image
from support.helpers import REPOSITORY, assert_refused, load_program
from support.recipes import WRITE_DOWN, read_calls, run_written_down

GALLERY = REPOSITORY / "examples" / "gallery"


@pytest.fixture(scope="module")
def shrinker():
    return load_program(GALLERY / "shrink.py")


def read(content):
    return numpy.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def test_a_figure_of_few_colours_keeps_every_pixel(shrinker):
    picture = Image.new("RGBA", (200, 100), (255, 255, 255, 255))
    picture.paste((0, 114, 178, 255), (10, 10, 60, 90))
    picture.paste((213, 94, 0, 255), (70, 30, 120, 90))
    assert (read(shrinker.shrink(picture)) == numpy.asarray(picture.convert("RGB"))).all()


def test_what_is_transparent_becomes_white(shrinker):
    assert (read(shrinker.shrink(Image.new("RGBA", (4, 4), (0, 0, 0, 0)))) == 255).all()


def test_a_large_picture_becomes_smaller_until_it_fits(shrinker):
    noise = Image.fromarray(numpy.random.default_rng(1).integers(0, 255, (300, 300, 3), dtype=numpy.uint8))
    content = shrinker.shrink(noise, limit=40_000)
    assert len(content) <= 40_000
    assert read(content).shape[0] in (165, 120, 210)
    with pytest.raises(ValueError, match=r"must fit into 1000 bytes, but one of 300 x 300 pixels takes \d+ at 40%"):
        shrinker.shrink(noise, limit=1000)


def test_the_command_names_what_is_no_picture(shrinker, tmp_path, capsys):
    Image.new("RGB", (5, 5)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("no picture")
    out = tmp_path / "out"
    assert shrinker.main([str(tmp_path / "good.png"), "--output", str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["good.png"]
    assert shrinker.main([str(tmp_path / "bad.png"), "--output", str(out)]) == 2
    assert "bad.png" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1])  # 1: the quickstart's score is outside of its interval
def test_a_trial_keeps_the_pictures_of_the_gallery(tmp_path, code):
    for name in ("quickstart", "quickstart-transformer"):
        (tmp_path / name).mkdir()
        for step in ("prepare", "binarise", "train", "average", "generate"):
            (tmp_path / name / f".{step}.done").touch()
    python = f'{WRITE_DOWN}\ncase "$*" in */report.py*) exit {code} ;; esac'
    settings = {"FAST_TRIAL": "1", "QUICKSTART_DIR": str(tmp_path / "quickstart")}
    done = run_written_down(tmp_path, "gallery", "make", programs={"python": python}, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = read_calls(tmp_path)
    (sentence,) = [words[words.index("--sentence") + 1] for words in calls if "--split" in words]
    assert sentence == "1"  # there are 60 in a trial
    assert calls[-1][:3] == [str(GALLERY / "shrink.py"), "--output", str(tmp_path / "work" / "pictures")]
    refused = run_written_down(tmp_path, "gallery", "make", "--sentence", "3", programs={}, **settings)
    assert_refused(refused, "it takes settings from the environment, but got the arguments '--sentence 3'; see --help.")


def test_every_picture_of_the_gallery_is_small_and_shown():
    """And every picture that is shown is there."""
    shown = (GALLERY / "README.md").read_text(encoding="utf-8")
    pictures = sorted(GALLERY.glob("*.png"))
    assert len(pictures) >= 6
    for path in pictures:
        assert path.stat().st_size <= 150_000, path.name
        assert f"({path.name})" in shown, path.name
    for name in [part.split(")")[0] for part in shown.split("](")[1:]]:
        if name.endswith(".png"):
            assert (GALLERY / name).is_file(), name
