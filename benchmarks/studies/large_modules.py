"""A text and an image transformer of usual size around which a classifier is put: time and memory beside last-layer Laplace.

    python -m benchmarks.studies.large_modules [--modules text vision] [--methods gwi Laplace]

writes results/large_modules.csv. The modules have the sizes of DistilBERT and of ViT-B/16 and random weights, for what is
measured does not depend on what they know: 128 texts of 128 tokens, or 64 images of 224 × 224 pixels, half of them unseen. Each
fit is in a process of its own, on one thread. Laplace's is of the last layer with a Kronecker factorisation, as its authors
advise, its prior precision by the marginal likelihood. *The module alone* is one pass over the same rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.tables.common.machine import peak_megabytes, reset_peak
from benchmarks.tables.common.records import append, read
from gwi import GWIClassifier

NUM_CLASSES = 4


class Block(nn.Module):
    """One layer of a transformer, as both have it."""

    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, num_heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, states: Tensor, padding: Tensor | None = None) -> Tensor:
        """States of all tokens."""
        return self.layer(states, src_key_padding_mask=padding)


class TextModule(nn.Module):
    """Of DistilBERT's size: 6 layers of 768 units and 12 heads, 30,522 words; tokens and a mask in, a dict out."""

    def __init__(self, num_layers: int = 6, width: int = 768, num_heads: int = 12, num_words: int = 30_522, length: int = 512):
        super().__init__()
        self.words, self.places = nn.Embedding(num_words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([Block(width, num_heads) for _ in range(num_layers)])
        self.inner, self.head = nn.Linear(width, width), nn.Linear(width, NUM_CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Logits and hidden states."""
        states = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        for layer in self.layers:
            states = layer(states, attention_mask == 0)
        return {"logits": self.head(torch.relu(self.inner(states[:, 0]))), "last_hidden_state": states}


class VisionModule(nn.Module):
    """Of ViT-B/16's size: 12 layers of 768 units and 12 heads over patches of 16 × 16 pixels; images in, logits out."""

    def __init__(self, num_layers: int = 12, width: int = 768, num_heads: int = 12, pixels: int = 224, patch: int = 16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (pixels // patch) ** 2 + 1, width))
        self.layers = nn.ModuleList([Block(width, num_heads) for _ in range(num_layers)])
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits."""
        tokens = self.patches(pixel_values).flatten(2).mT
        states = torch.cat([self.first.expand(len(tokens), -1, -1), tokens], dim=1) + self.places
        for layer in self.layers:
            states = layer(states)
        return self.head(states[:, 0])


class Packed(nn.Module):
    """A module of texts for who passes one tensor: tokens, and behind them the mask."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        ids, mask = x.chunk(2, dim=1)
        found: Tensor = self.module(ids, mask)["logits"]
        return found


def texts(num_rows: int, length: int, num_words: int) -> dict[str, np.ndarray]:
    """Tokens, and which of them count."""
    rng = np.random.default_rng(0)
    mask = (np.arange(length) < rng.integers(length // 2, length + 1, num_rows)[:, None]).astype(np.int64)
    return {"input_ids": rng.integers(0, num_words, (num_rows, length)), "attention_mask": mask}


def images(num_rows: int, pixels: int) -> dict[str, np.ndarray]:
    """Noise."""
    return {"pixel_values": np.random.default_rng(0).standard_normal((num_rows, 3, pixels, pixels), dtype=np.float32)}


def problem(name: str, *, small: bool = False) -> tuple[nn.Module, dict[str, np.ndarray], np.ndarray]:
    """A module, rows in parts and labels; a small one for tests."""
    torch.manual_seed(0)
    if name == "text":
        sizes: dict[str, Any] = {"num_layers": 1, "width": 32, "num_heads": 2, "num_words": 100} if small else {}
        module: nn.Module = TextModule(**sizes)
        rows = texts(128, 16 if small else 128, sizes.get("num_words", 30_522))
    else:
        sizes = {"num_layers": 1, "width": 32, "num_heads": 2, "pixels": 32} if small else {}
        module, rows = VisionModule(**sizes), images(64, sizes.get("pixels", 224))
    num_rows = len(next(iter(rows.values())))
    return module.eval(), rows, np.random.default_rng(1).integers(0, NUM_CLASSES, num_rows)


def some(rows: dict[str, np.ndarray], part: slice) -> dict[str, np.ndarray]:
    """Some rows of each part."""
    return {name: values[part] for name, values in rows.items()}


def gwi(module: nn.Module, rows: dict[str, np.ndarray], labels: np.ndarray) -> Callable[[], Any]:
    """Ours: a covariance on the features of the last layer, judged by the half that was not learned from.

    Prediction gives probabilities, both parts of the entropy and the outlier score.
    """
    half = len(labels) // 2
    model = GWIClassifier(module, random_state=0)
    model.fit(some(rows, slice(half)), labels[:half], validation=(some(rows, slice(half, None)), labels[half:]))
    return lambda: model.predict_columns(rows, parts=True)


def laplace(module: nn.Module, rows: dict[str, np.ndarray], labels: np.ndarray) -> Callable[[], Any]:
    """Last layer, Kronecker factors."""
    from laplace import Laplace

    half = len(labels) // 2
    x = torch.from_numpy(np.concatenate(list(rows.values()), axis=1))
    network = Packed(module) if len(rows) > 1 else module
    model = Laplace(network, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    model.fit(DataLoader(TensorDataset(x[:half], torch.from_numpy(labels[:half])), batch_size=32))
    model.optimize_prior_precision(pred_type="glm", method="marglik")
    return lambda: [model(part, pred_type="glm") for part in x.split(32)]


@torch.no_grad()
def alone(module: nn.Module, rows: dict[str, np.ndarray], labels: np.ndarray) -> Callable[[], Any]:
    """One pass, and nothing else."""
    parts = [torch.from_numpy(values) for values in rows.values()]

    @torch.no_grad()
    def predict() -> Any:
        return [module(*(part[start : start + 32] for part in parts)) for start in range(0, len(labels), 32)]

    predict()
    return predict


METHODS: dict[str, Callable[..., Callable[[], Any]]] = {"the module alone": alone, "gwi": gwi, "Laplace": laplace}


def measure(name: str, method: str, *, small: bool = False) -> dict[str, Any]:
    """Seconds and megabytes of one method, in this process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    module, rows, labels = problem(name, small=small)
    reset_peak()
    before, start = peak_megabytes(), time.process_time()
    predict = METHODS[method](module, rows, labels)
    fitted = time.process_time()
    predict()
    return {
        "module": name,
        "method": method,
        "parameters": sum(p.numel() for p in module.parameters()),
        "rows": len(labels),
        "fit_cpu_seconds": fitted - start,
        "predict_cpu_seconds": time.process_time() - fitted,
        "peak_mb": peak_megabytes(),
        "peak_mb_more": peak_megabytes() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="+", choices=("text", "vision"), default=("text", "vision"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--here", action="store_true", help="in this process, one module and method")
    arguments = parser.parse_args()
    if arguments.here:
        found = measure(arguments.modules[0], arguments.methods[0])
        append("large_modules", [found])
        print(*found.values())
        return
    done = {(r["module"], r["method"]) for r in read("large_modules")}
    for name in arguments.modules:
        for method in arguments.methods:
            if (name, method) not in done:
                command = [sys.executable, "-m", "benchmarks.studies.large_modules", "--here"]
                subprocess.run([*command, "--modules", name, "--methods", method], check=True)


if __name__ == "__main__":
    main()
