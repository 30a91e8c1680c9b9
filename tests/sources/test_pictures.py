"""Pictures in folders and in tables of the datasets library."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from advfrontier.errors import FrontierError
from advfrontier.sources import load_data
from advfrontier.sources.pictures import Preprocessing

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
RNG = np.random.default_rng(0)


def picture(width, height):
    smooth = Image.fromarray(RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize(
        (width, height)
    )
    return Image.fromarray(
        np.clip(np.array(smooth) + RNG.integers(0, 9, (height, width, 3)), 0, 255).astype(np.uint8)
    )


@pytest.fixture
def folder(tmp_path):
    for name, count in (("cat", 3), ("ant", 2), ("dog", 1)):
        (tmp_path / "val" / name).mkdir(parents=True)
        for number in range(count):
            picture(40 + 3 * number, 33).save(tmp_path / "val" / name / f"{number}.png")
    (tmp_path / "val" / "cat" / "notes.txt").write_text("not a picture")
    return tmp_path / "val"


def test_class_folders_are_numbered_by_name_and_read_on_demand(folder):
    samples = load_data(f"imagefolder:{folder}?preprocessing=Res32Crop24")
    assert samples.class_names == ("ant", "cat", "dog")
    assert samples.labels.tolist() == [0, 0, 1, 1, 1, 2]
    (folder / "cat" / "2.png").write_bytes(b"broken")
    images = samples.read(torch.tensor([5, 0]))
    assert images.shape == (2, 3, 24, 24)
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert torch.equal(again.read(torch.tensor([5, 0])), images)
    with pytest.raises(FrontierError, match=r"cat/2\.png cannot be read as a picture"):
        samples.read(torch.tensor([4]))


def test_class_folders_without_preprocessing(folder):
    samples = load_data(f"imagefolder:{folder}")
    pixels = np.array(Image.open(folder / "dog" / "0.png"))
    assert torch.equal(
        samples.read(torch.tensor([5]))[0], torch.from_numpy(pixels).permute(2, 0, 1) / 255
    )
    with pytest.raises(
        FrontierError, match=r"different sizes .*: expected one size; name a preprocessing"
    ):
        samples.read(torch.tensor([2, 3]))


@pytest.mark.parametrize(("kind", "mode"), [(np.uint16, "I;16"), (np.float32, "F")])
def test_pictures_of_more_than_8_bits_are_refused(folder, kind, mode):
    Image.fromarray(np.arange(64).reshape(8, 8).astype(kind)).save(folder / "ant" / "0.tif")
    with pytest.raises(
        FrontierError,
        match=rf"ant/0\.tif cannot be read .*mode {mode}: expected 8 bits per channel",
    ):
        load_data(f"imagefolder:{folder}").read(torch.tensor([1]))


def test_list_names_the_pictures_and_their_order(folder, tmp_path):
    names = tmp_path / "list.txt"
    names.write_text("dog/0.png\ncat/2.png\n\ncat/0.png\n")
    samples = load_data(f"imagefolder:{folder}?list={names}&preprocessing=Res24")
    assert samples.labels.tolist() == [
        2,
        1,
        1,
    ]  # numbered among all folders, not only the listed ones
    whole = load_data(f"imagefolder:{folder}?preprocessing=Res24")
    assert torch.equal(samples.read(torch.arange(3)), whole.read(torch.tensor([5, 4, 2])))
    for line, message in (
        ("../val/dog/0.png", "expected paths like CLASS/NAME.jpg"),
        (f"{folder}/dog/0.png", "expected paths like CLASS/NAME.jpg"),
        ("0.png", "expected paths like CLASS/NAME.jpg"),
        (".hidden/0.png", "expected paths like CLASS/NAME.jpg"),
        ("cat/../dog/0.png", "expected paths like CLASS/NAME.jpg"),
        ("dog/9.png", "which is not in"),
    ):
        names.write_text(line)
        with pytest.raises(FrontierError, match=message):
            load_data(f"imagefolder:{folder}?list={names}")


def test_list_of_robustbench(folder, library):
    library("timm")
    if find_spec("robustbench") is None:
        pytest.skip("robustbench is not installed")
    with pytest.raises(
        FrontierError, match=r"the list names 'n\d+/ILSVRC2012_val_\d+\.JPEG', which is not in"
    ):
        load_data(f"imagefolder:{folder}?list=robustbench")


def test_class_folders_missing(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FrontierError, match="has no folders: expected one per class"):
        load_data(f"imagefolder:{tmp_path / 'empty'}")
    with pytest.raises(FrontierError, match="found no pictures"):
        load_data(f"imagefolder:{tmp_path}")


def labelled(folder, table, content):
    for name, value in (("a.png", 0), ("b.png", 51), ("sub/c.png", 102)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), value, np.uint8)).save(path)
    (folder / table).write_text(content, encoding="utf-8-sig")


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("file,label\nsub/c.png,2\na.png,0\nb.png,1\n", ""),
        ("sub/c.png,2\na.png,0\nb.png,1\n", ""),
        ("id;class;Filename\n9;2;sub/c.png\n8;0;a.png\n\n7;1;b.png\n", ""),
        ("x\ty\tz\n5\t 2\tsub/c.png\n5\t0\ta.png\n5\t1\tb.png", "&file=z&label=y"),
    ],
)
def test_labelled_folder(tmp_path, content, options):
    labelled(tmp_path, "labels.csv", content)
    samples = load_data(f"folder:{tmp_path}?labels=labels.csv{options}")
    assert samples.labels.tolist() == [2, 0, 1]
    assert samples.class_names is None
    images = samples.read(torch.tensor([2, 0]))
    assert images.shape == (2, 3, 4, 5)
    assert torch.equal(images[:, 0, 0, 0], torch.tensor([51, 102]) / 255)
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert torch.equal(again.read(torch.tensor([2, 0])), images)


def test_labelled_folder_with_class_names_and_a_table_elsewhere(tmp_path):
    labelled(tmp_path / "pictures", "unused.csv", "")
    (tmp_path / "truth.csv").write_text("name,label\na.png,dog\nb.png,ant\nsub/c.png,dog\n")
    samples = load_data(
        f"folder:{tmp_path / 'pictures'}?labels={tmp_path / 'truth.csv'}&preprocessing=Res2"
    )
    assert samples.class_names == ("ant", "dog")
    assert samples.labels.tolist() == [1, 0, 1]
    assert samples.read(torch.tensor([0])).shape == (1, 3, 2, 2)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("file,label\nd.png,1\n", "", r"labels.csv names 'd.png', which is not in"),
        ("file,label\n../a.png,1\n", "", "names '../a.png': expected paths like NAME.jpg"),
        ("file,label\nsub/../a.png,1\n", "", "names 'sub/../a.png': expected paths like NAME.jpg"),
        ("file,label\n/a.png,1\n", "", "names '/a.png': expected paths like NAME.jpg"),
        ("file,label\n,1\n", "", "names '': expected paths like NAME.jpg"),
        ("file,label\na.png,1,2\n", "", "has a line 'a.png,1,2': expected 2 cells"),
        ("file,label\n", "", "names no pictures: expected one line per picture"),
        ("a.png\n", "", "has 1 columns: expected a file name and a label in each line"),
        ("", "", "has 0 columns"),
        ("file,label\na.png,1\n", "&label=y", "has the columns file, label: name the label col"),
        ("file,label\na.png,1\n", "&file=z", "has the columns file, label: name the file column"),
        ("file,label\na.png,1\n", "&size=3", "'size=3' is not an option of folder"),
    ],
)
def test_labelled_folder_wrong_table(tmp_path, content, options, message):
    labelled(tmp_path, "labels.csv", content)
    with pytest.raises(FrontierError, match=message):
        load_data(f"folder:{tmp_path}?labels=labels.csv{options}")


def test_labelled_folder_missing_table(tmp_path):
    labelled(tmp_path, "labels.csv", "file,label\na.png,1\n")
    with pytest.raises(
        FrontierError, match=r"no table of labels: expected folder:DIR\?labels=FILE"
    ):
        load_data(f"folder:{tmp_path}")
    with pytest.raises(FrontierError, match=r"found nothing at other\.csv: expected a file"):
        load_data(f"folder:{tmp_path}?labels=other.csv")
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FrontierError, match=r"labels.csv cannot be read \(UnicodeDecodeError.*CSV"):
        load_data(f"folder:{tmp_path}?labels=labels.csv")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [(50, 38), (38, 50), (40, 40), (20, 61), (23, 19)])
@pytest.mark.parametrize(
    "name", ["Res32Crop28", "BicubicRes32Crop28", "Res28", "Crop28", "Crop27", "Res9Crop9", "None"]
)
def test_preprocessing_equals_torchvision(library, name, size):
    transforms = library("torchvision.transforms")
    bilinear, bicubic = transforms.InterpolationMode.BILINEAR, transforms.InterpolationMode.BICUBIC
    reference = {
        "Res32Crop28": [transforms.Resize(32, bilinear), transforms.CenterCrop(28)],
        "BicubicRes32Crop28": [transforms.Resize(32, bicubic), transforms.CenterCrop(28)],
        "Res28": [transforms.Resize([28, 28], bilinear)],
        "Crop28": [transforms.CenterCrop(28)],
        "Crop27": [transforms.CenterCrop(27)],
        "Res9Crop9": [transforms.Resize(9, bilinear), transforms.CenterCrop(9)],
        "None": [],
    }[name]
    given = picture(*size)
    expected = transforms.Compose([*reference, transforms.ToTensor()])(given)
    assert torch.equal(Preprocessing.named(name, "test")(given) / 255, expected)


def test_preprocessing_unknown(folder):
    for name in ("Resize256", "Bicubic", "Crop0", "crop224", "BicubicCrop28"):
        with pytest.raises(
            FrontierError,
            match=f"unknown preprocessing '{name}': expected a name such as Res256Crop224",
        ):
            load_data(f"imagefolder:{folder}?preprocessing={name}")


# The datasets library


@pytest.fixture(scope="module")
def datasets(library, tmp_path_factory):
    found = library("datasets")
    found.disable_progress_bars()
    patch = pytest.MonkeyPatch()
    patch.setattr(found.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield found
    patch.undo()


@pytest.fixture
def pictures():
    return [picture(12, 10) for _ in range(5)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["disk", "splits", "parquet", "folder"])
def test_local_data_set(datasets, tmp_path, pictures, way):
    features = datasets.Features(
        {"img": datasets.Image(), "y": datasets.ClassLabel(names=["no", "yes"])}
    )
    labels = [1, 0, 0, 1, 1]
    table = datasets.Dataset.from_dict({"img": pictures, "y": labels}, features=features)
    if way == "disk":
        table.save_to_disk(str(tmp_path / "set"))
    elif way == "splits":
        datasets.DatasetDict({"train": table.select([0]), "test": table}).save_to_disk(
            str(tmp_path / "set")
        )
    elif way == "parquet":
        (tmp_path / "set").mkdir()
        table.to_parquet(str(tmp_path / "set" / "test.parquet"))
    else:
        for number, (image, label) in enumerate(zip(pictures, labels, strict=True)):
            place = tmp_path / "set" / "test" / features["y"].names[label]
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{number}.png")
    samples = load_data(f"hf:{tmp_path / 'set'}", samples=5)
    assert sorted(samples.labels.tolist()) == sorted(labels)
    assert samples.class_names == ("no", "yes")
    found = samples.read(torch.arange(5))
    known = (
        torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in pictures])
        / 255
    )
    assert torch.equal(found.sum((1, 2, 3)).sort()[0], known.sum((1, 2, 3)).sort()[0])
    if way != "folder":
        assert torch.equal(found, known)
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert torch.equal(again.read(torch.tensor([3])), found[[3]])
    smaller = load_data(f"hf:{tmp_path / 'set'}?preprocessing=Res8Crop8")
    assert smaller.read(torch.tensor([0])).shape == (1, 3, 8, 8)


@pytest.mark.filterwarnings("ignore")
def test_unclear_splits_and_columns(datasets, tmp_path, pictures):
    table = datasets.Dataset.from_dict({"a": pictures, "b": [0] * 5}).cast_column(
        "a", datasets.Image()
    )
    datasets.DatasetDict({"one": table, "two": table}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(
        FrontierError, match=r"has the splits one, two: name one of them with \?split="
    ):
        load_data(f"hf:{tmp_path / 'set'}")
    with pytest.raises(
        FrontierError, match=r"has the columns a, b: name the label column with \?label="
    ):
        load_data(f"hf:{tmp_path / 'set'}?split=two")
    assert len(load_data(f"hf:{tmp_path / 'set'}?split=two&label=b&image=a")) == 5
    with pytest.raises(FrontierError, match="holds one split, and that is not one"):
        load_data(f"hf:{tmp_path / 'set' / 'two'}?split=one&label=b")


@pytest.mark.filterwarnings("ignore")
def test_data_sets_are_not_fetched_unless_asked_and_pickles_do_not_run(datasets, tmp_path, payload):
    with pytest.raises(FrontierError, match=r"cannot load it.*--download"):
        load_data("hf:org/name")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "test.pkl").write_bytes(pickle.dumps(payload))
    with pytest.raises(FrontierError, match="cannot load it"):
        load_data(f"hf:{tmp_path / 'set'}")
    (tmp_path / "set" / "set.py").write_text(f"open({payload.file!r}, 'w')")
    with pytest.raises(FrontierError, match="cannot load it"):
        load_data(f"hf:{tmp_path / 'set'}")
