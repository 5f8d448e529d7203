"""Training the networks: augmentation, one cycle of the learning rate, and a cache, so that each is trained once."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from benchmarks.tables.common.data import cache_file
from benchmarks.tables.common.records import RESULTS
from benchmarks.tables.images.data import QUICK_SIZES, Data, DatasetName
from benchmarks.tables.images.networks import ARCHITECTURES, Architecture, SmallCNN, build
from gwi.storage.container import from_bytes, to_bytes
from gwi.tables.files import write_atomically

# The shared networks of the records: with them post-hoc rows are made again on any machine, to the last digits.
KEPT = RESULTS / "networks"
# Of the learning rate: rises for this share of the steps, from this share of its peak.
RISE, START = 0.2, 0.1
BATCH_SIZE_FOR_PREDICTION = 250


@dataclass(frozen=True)
class Recipe:
    """A network and how it is trained: stochastic gradients with Nesterov's momentum on the cross-entropy.

    Attributes:
        architecture: of the network.
        num_epochs: passes over the training images.
        shift: pixels that a training image is moved by at most, in each direction; half of them are mirrored too.
        batch_size: images in a step.
        learning_rate: at its peak.
        weight_decay: of all weights, but not of biases and of batch normalisation.
    """

    architecture: Architecture
    num_epochs: int
    shift: int
    batch_size: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 5e-4


RECIPES: dict[DatasetName, Recipe] = {
    "fashion-mnist": Recipe(ARCHITECTURES["fashion-mnist"], num_epochs=12, shift=2),
    "cifar10-20k": Recipe(ARCHITECTURES["cifar10-20k"], num_epochs=25, shift=4),
}


@dataclass(frozen=True)
class Trained:
    """A trained network.

    Attributes:
        network: in evaluation mode.
        seconds: that its training took, by the clock on the wall.
    """

    network: SmallCNN
    seconds: float


def trained(data: Data, recipe: Recipe, seed: int, *, member: int = 0, dropout: float = 0.0) -> Trained:
    """The network of a seed, one that is kept or else trained now; member 0 is the one that all post-hoc methods share.

    It is kept with its training time in the folder of downloads (``$GWI_CACHE``, else in the user's folder for caches), under a
    name that changes with the recipe and the number of images; the shared ones of the records come with them.
    """
    own_seed = 1000 * seed + member
    network = build(recipe.architecture, seed=own_seed, dropout=dropout)
    what = {"set": data.name, "images": len(data.train_x), "seed": own_seed, "dropout": dropout, "recipe": asdict(recipe)}
    name = file_name(what, seed, member)
    path = cache_file(f"benchmarks/{name}")
    kept = read_network(KEPT / name) or read_network(path)
    if kept is not None:
        document, tensors = kept
        network.load_state_dict(tensors)
        return Trained(network.eval(), document["seconds"])
    seconds = train(network, sgd(network, recipe), data, recipe, own_seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_bytes(what | {"seconds": seconds}, network.state_dict()))
    return Trained(network, seconds)


def read_network(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """What its file says of a network, and its numbers; None where there is none, or a damaged one."""
    try:
        return from_bytes(path.read_bytes(), str(path))
    # Absent, unreadable or damaged, a training mends it.
    except Exception:
        return None


def keep_shared(folder: Path = KEPT) -> list[Path]:
    """Copy the shared networks that the cache holds to the records; returns their files."""
    made = []
    for path in sorted(cache_file("benchmarks").glob("*/seed*-member0-*.safetensors")):
        kept = read_network(path)
        if kept is None:
            continue
        document, tensors = kept
        # As JSON, which has no tuples.
        recipe = json.loads(json.dumps(asdict(RECIPES[document["set"]])))
        whole = document["recipe"] == recipe and document["dropout"] == 0 and document["images"] > max(QUICK_SIZES)
        target = folder / path.parent.name / path.name
        if whole and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, to_bytes(document, tensors))
            made.append(target)
    return made


def file_name(what: Mapping[str, Any], seed: int, member: int) -> str:
    """Of a network, below the folder where it is kept."""
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    return f"{what['set']}/seed{seed}-member{member}-{digest}.safetensors"


def sgd(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser."""
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others}]
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=0.9, nesterov=True)


def train(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    data: Data,
    recipe: Recipe,
    seed: int,
    *,
    penalty: Callable[[], Tensor] | None = None,
) -> float:
    """Train on the cross-entropy of augmented images, plus a penalty; returns the seconds, the network in evaluation mode."""
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    num_steps = num_gradient_steps(recipe, len(data.train_x))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: one_cycle((step + 0.5) / num_steps))
    network.train()
    with torch.random.fork_rng(devices=[]):
        # Dropout and sampled weights draw from the global generator.
        torch.manual_seed(seed)
        for _ in range(recipe.num_epochs):
            for rows in torch.randperm(len(data.train_x), generator=generator).split(recipe.batch_size):
                x = augmented(data.train_x[rows], recipe.shift, data.black, generator)
                loss = nn.functional.cross_entropy(network(x), data.train_y[rows])
                if penalty is not None:
                    loss = loss + penalty()
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
    network.eval()
    return time.perf_counter() - start


def num_gradient_steps(recipe: Recipe, num_images: int) -> int:
    """Of a training by the recipe."""
    return recipe.num_epochs * math.ceil(num_images / recipe.batch_size)


def one_cycle(share: float) -> float:
    """The learning rate as a share of its peak, after a share of the steps: up in a line, down in half a cosine."""
    if share < RISE:
        return START + (1 - START) * share / RISE
    return (1 + math.cos(math.pi * min(1.0, (share - RISE) / (1 - RISE)))) / 2


def augmented(x: Tensor, shift: int, black: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `shift` pixels in each direction, black coming in, and every second one mirrored."""
    n, c, h, w = x.shape
    padded = black[:, None, None].repeat(n, 1, h + 2 * shift, w + 2 * shift)
    padded[..., shift : shift + h, shift : shift + w] = x
    top, left = torch.randint(0, 2 * shift + 1, (2, n, 1), generator=generator)
    rows, columns = top + torch.arange(h), left + torch.arange(w)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    images, channels = torch.arange(n)[:, None, None, None], torch.arange(c)[None, :, None, None]
    return padded[images, channels, rows[:, None, :, None], columns[:, None, None, :]]


def mirror(x: Tensor) -> Tensor:
    """The images with left and right exchanged."""
    return x.flip(-1)


class AugmentedImages(Dataset[tuple[Tensor, Tensor]]):
    """The training images of a problem, which come otherwise moved and mirrored each time.

    Args:
        data: of the problem.
        recipe: says by how much images are moved.
        generator: for the choice.
    """

    def __init__(self, data: Data, recipe: Recipe, generator: torch.Generator) -> None:
        self.data, self.recipe, self.generator = data, recipe, generator

    def __len__(self) -> int:
        return len(self.data.train_x)

    def __getitem__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        x = augmented(self.data.train_x[rows], self.recipe.shift, self.data.black, self.generator)
        return x, self.data.train_y[rows]


def augmented_loader(data: Data, recipe: Recipe, seed: int, batch_size: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches of what the networks are trained on: all images once a pass, in a random order, moved and mirrored anew."""
    generator = torch.Generator().manual_seed(seed)
    images = AugmentedImages(data, recipe, generator)
    sampler = BatchSampler(RandomSampler(images, generator=generator), batch_size, drop_last=False)
    # Images are moved a batch at a time; the loader has no batches of its own to make.
    return DataLoader(images, sampler=sampler, batch_size=None, generator=generator)


@torch.no_grad()
def in_batches(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of images, some at a time and without gradients."""
    return torch.cat([function(part) for part in x.split(BATCH_SIZE_FOR_PREDICTION)])
