"""Parameters of models of 2024 to 2026 whose layers are not all attention and an MLP.

Each is counted by hand from the shapes that papers and model cards tell: embedding,
layers, last norm, head, matrix by matrix. No line is shared with
`hetopt.catalogue.architectures`, and no configuration is read.
"""

from collections.abc import Sequence

from parameter_counts import deepseek, ernie, mamba2

K = 1024


def mlp(h: int, i: int) -> int:
    """Gate, up and down."""
    return 3 * h * i


def attention(h: int, q: int, kv: int, qk: int = 0) -> int:
    """Queries, output, keys, values; norms of heads `qk` wide."""
    return 2 * h * q + 2 * h * kv + 2 * qk


def delta(h: int, keys: int, values: int, heads: int, width: int) -> int:
    """A gated delta net: q k v and gate, two of each head, convolution, norm, out."""
    return (
        h * (2 * keys + 2 * values)
        + h * 2 * heads
        + 4 * (2 * keys + values)
        + 2 * heads
        + width
        + values * h
    )


def qwen(
    h: int, n: int, q: int, kv: int, heads: int, mlps: int, v: int, ends: int = 2
) -> int:
    """Three of four layers are delta nets; attention has a gate as wide as queries."""
    full = attention(h, q, kv, 256) + h * q
    linear = delta(h, 16 * 128, heads * 128, heads, 128)
    return n // 4 * (full + 3 * linear) + n * (2 * h + mlps) + h + ends * v * h


def sparse(h: int, experts: int, i: int, shared: int) -> int:
    """Experts, their router, a shared one and its gate."""
    return (experts + 1) * h + experts * mlp(h, i) + mlp(h, shared)


def falcon(
    h: int, n: int, q: int, kv: int, i: int, mixer: int, v: int
) -> int:  # fmt: skip
    """Attention and a mixer side by side behind one norm, then an MLP."""
    layer = attention(h, q, kv) + mixer + mlp(h, i) + 2 * h
    return n * layer + h + 2 * v * h


def plain_mamba2(h: int, heads: int, width: int, states: int, normed: int = 0) -> int:
    """A mixer without a norm before it, and without one behind unless `normed`."""
    return mamba2(h, heads, width, states) - h - (1 - normed) * heads * width


def jamba(h: int, n: int, kv: int, i: int, rank: int) -> int:
    """One of eight attends, the others are Mamba-1; every second has 16 experts."""
    w, state = 2 * h, 16
    mixer = (
        2 * w * h + 4 * w + w + w * (rank + 2 * state) + rank * w + w + w * state + w
        + w * h + rank + 2 * state
    )  # fmt: skip
    mlps = mlp(h, i) + 16 * mlp(h, i) + 16 * h
    layers = n // 8 * (attention(h, h, kv) + 7 * mixer) + n // 2 * mlps
    return layers + n * 2 * h + h + 2 * 65_536 * h


def mamba(h: int, n: int, rank: int, v: int, ends: int = 2) -> int:
    """Mamba-1 alone: in, convolution, step and states, decays, skip, out, a norm."""
    w, state = 2 * h, 16
    mixer = 2 * w * h + 5 * w + w * (rank + 2 * state) + rank * w + w + w * state + w
    return n * (mixer + w * h + h) + h + ends * v * h


def lfm2(h: int, n: int, full: int, i: int, mlps: int | None = None) -> int:
    """Attention with keys of 512 in `full` layers, convolutions of three elsewhere."""
    heads = 64
    each = mlps if mlps is not None else n * mlp(h, i)
    convolution = 3 * h * h + 3 * h + h * h
    return (
        full * attention(h, h, 512, heads)
        + (n - full) * convolution
        + each
        + n * 2 * h
        + h
        + 65_536 * h
    )


def lfm3() -> int:
    """11 layers attend, behind a gate of each head, 13 are convolutions of seven."""
    h = 2048
    attending = attention(h, 16 * 128, 4 * 128, 128) + 16 * h
    convolution = 4 * h * h + 7 * h
    return (
        11 * attending
        + 13 * convolution
        + 24 * (mlp(h, 7680) + 4 * h)
        + h
        + (128_000 * h)
    )


def ling_3() -> int:
    """35 layers of Kimi delta attention with whole gates, 7 of gated latent ones."""
    h, q = 2560, 32 * 128
    kda = 3 * h * q + 4 * 3 * q + 2 * h * q + q + 32 + h * 32 + 128 + q * h
    latent = h * 32 * 192 + h * 576 + 512 + 512 * 32 * 256 + q * h + h * 32
    mlps = 2 * mlp(h, 6144) + 40 * (513 * mlp(h, 768) + 512 * h)
    return 35 * kda + 7 * latent + mlps + 42 * 2 * h + h + 2 * 157_184 * h


def minimax_01() -> int:
    """70 layers of lightning attention, 10 of full attention; 32 experts in each."""
    h, q = 6144, 64 * 128
    lightning = h * 3 * q + h * q + q + q * h
    mixture = 32 * mlp(h, 9216) + 32 * h
    layers = 70 * lightning + 10 * attention(h, q, K) + 80 * (mixture + 2 * h)
    return layers + h + 2 * 200_064 * h


def kimi_linear() -> int:
    """20 layers of Kimi delta attention, 7 of latent attention; 26 with experts."""
    h, q, d = 2304, 32 * 128, 128
    low = h * d + d * q
    kda = 3 * h * q + 4 * 3 * q + 2 * low + q + 32 + h * 32 + d + q * h
    latent = h * 32 * 192 + h * 576 + 512 + 512 * 32 * 256 + q * h
    mixture = 257 * mlp(h, K) + 256 * h
    mlps = mlp(h, 9216) + 26 * mixture
    return 20 * kda + 7 * latent + mlps + 27 * 2 * h + h + 2 * 163_840 * h


def olmo_hybrid() -> int:
    """24 delta nets of 30 heads, 8 of full attention with norms of all heads."""
    h = 3840
    linear = delta(h, 30 * 96, 30 * 192, 30, 192)
    full = attention(h, h, h) + 2 * h
    return 24 * linear + 8 * full + 32 * (mlp(h, 11_008) + 2 * h) + h + 2 * 100_352 * h


def longcat() -> int:
    """Two latent attentions and two MLPs a layer, 512 experts and 256 without weights.

    As in the paper: the class in transformers allocates gate and up of the idle ones.
    """
    h = 6144
    latent = h * 1536 + 1536 + 1536 * 64 * 192 + h * 576 + 512 + 512 * 64 * 256
    latent += 64 * 128 * h
    layer = 2 * (latent + mlp(h, 12_288) + 2 * h) + 512 * mlp(h, 2048) + 768 * h
    return 28 * layer + h + 2 * 131_072 * h


def hunyuan_large() -> int:
    """Every second layer has the keys and values of the one before; heads of 80."""
    h, kv = 6400, 8 * 80
    mixture = 17 * mlp(h, 18_304) + 16 * h
    both = 2 * 2 * h * h + 2 * h * kv + 3 * 80
    return 32 * both + 64 * (mixture + 2 * h) + h + 128_512 * h


def gemma_3n(n: int, shared: int, i: int) -> int:
    """AltUp of four streams, LAuReL of rank 64, embeddings of 256 for each layer."""
    h, q, kv, d = 2048, 8 * 256, 2 * 256, 256
    altup = h + 4 * 4 + 4 * 16 + 4 * h + h
    laurel = 2 * h * 64 + h
    inputs = 2 * h * d + h
    layer = 2 * h * q + d + mlp(h, i) + 4 * h + altup + laurel + inputs
    own = 2 * h * kv + d
    beside = n * d * (262_144 + h) + d + 6 * h * h + h + 262_400 * h
    return n * layer + (n - shared) * own + beside


def gemma_4(
    h: int, n: int, heads: int, every: int, kv: tuple[int, int], i: int,
    shared: int = 0, d: int = 0, values: int = 1, wide: int = 1, mixture: int = 0,
) -> int:  # fmt: skip
    """Heads of 512 in every so many layers, of 256 elsewhere; `kv` heads of both."""
    total = 262_144 * h + h
    for x in range(n):
        full = (x + 1) % every == 0
        width = 512 if full else 256
        total += 2 * h * heads * width + width + 4 * h + mixture
        reused = x >= n - shared
        total += mlp(h, i * (wide if reused else 1))
        if not reused:
            keys = h * kv[full] * width
            total += keys * (1 if full and not values else 2) + width
        if d:
            total += 2 * h * d + h + 262_144 * d + h * d
    return total + d


def indexed(h: int, low: int, heads: int) -> int:
    """Queries, a key, its norm with bias, and weights of an indexer."""
    return low * heads * 128 + h * 128 + 2 * 128 + h * heads


def glm_5() -> int:
    """Latent attention of 192 + 64 and 256, an indexer of 32 heads, 256 experts."""
    h = 6144
    latent = h * 2048 + 2048 + 2048 * 64 * 256 + h * 576 + 512 + 512 * 64 * (192 + 256)
    latent += 64 * 256 * h + indexed(h, 2048, 32)
    mixture = 257 * mlp(h, 2048) + 256 * h
    mlps = 3 * mlp(h, 12_288) + 75 * mixture
    return 78 * (latent + 2 * h) + mlps + h + 2 * 154_880 * h


def mimo() -> int:
    """Keys of 192 and values of 128; 9 full layers of 4, 39 windows of 8 with sinks."""
    h = 4096
    each = h * 64 * 192 + 64 * 128 * h
    full, window = (each + h * kv * (192 + 128) for kv in (4, 8))
    mixture = 256 * (mlp(h, 2048) + h)
    layers = 9 * full + 39 * (window + 64) + mlp(h, 16_384) + 47 * mixture
    return layers + 48 * 2 * h + h + 2 * 152_576 * h


def nemotron_super() -> int:
    """40 mixers, 8 of attention, 40 mixtures of 512 experts on tokens 1024 wide."""
    h = 4096
    mixture = 512 * (2 * K * 2688 + h) + 2 * h * K + 2 * h * 5376 + h
    attending = attention(h, h, 256) + h
    return 40 * mamba2(h, 128, 64) + 8 * attending + 40 * mixture + h + 2 * 131_072 * h


def openelm(h: int, d: int, heads: Sequence[int], factors: Sequence[float]) -> int:
    """A quarter of the heads have keys; MLPs are multiples of 256."""
    total = 32_000 * h + h
    for n, factor in zip(heads, factors, strict=True):
        i = max(256, int(factor * h + 128) // 256 * 256)
        total += attention(h, n * d, n // 4 * d, d) + mlp(h, i) + 2 * h
    return total


def between(first: float, last: float, n: int) -> list[float]:
    """So many numbers at equal distances, with two digits."""
    return [round(first + (last - first) * x / (n - 1), 2) for x in range(n)]


def nemotron_nas(h: int, kv: int, attending: int, mlps: int, widths: int) -> int:
    """Llama's layers, of which some lack attention, and MLPs so wide together."""
    each = attention(h, h, kv) + h
    return attending * each + 3 * h * widths + mlps * h + h + 2 * 128_256 * h


HYBRIDS = {
    "qwen3-next-80b-a3b": qwen(
        2048, 48, 4096, 512, 32, sparse(2048, 512, 512, 512), 151_936
    ),
    "qwen3.5-0.8b": qwen(K, 24, 2048, 512, 16, mlp(K, 3584), 248_320, 1),
    "qwen3.5-9b": qwen(4096, 32, 4096, K, 32, mlp(4096, 12_288), 248_320),
    "qwen3.5-27b": qwen(5120, 64, 6144, K, 48, mlp(5120, 17_408), 248_320),
    "qwen3.5-35b-a3b": qwen(
        2048, 40, 4096, 512, 32, sparse(2048, 256, 512, 512), 248_320
    ),
    "qwen3.5-122b-a10b": qwen(
        3072, 48, 8192, 512, 64, sparse(3072, 256, K, K), 248_320
    ),
    "qwen3.5-397b-a17b": qwen(
        4096, 60, 8192, 512, 64, sparse(4096, 512, K, K), 248_320
    ),
    "kimi-linear-48b-a3b": kimi_linear(),
    "minimax-text-01": minimax_01(),
    "minimax-m1-80k": minimax_01(),
    "olmo-hybrid-7b": olmo_hybrid(),
    "falcon-h1-34b": falcon(
        5120, 72, 2560, 512, 21_504, plain_mamba2(5120, 32, 128, 4 * 256, 1), 261_120
    ),
    "falcon-h1-7b": falcon(
        3072, 44, 1536, 256, 12_288, plain_mamba2(3072, 24, 128, 2 * 256), 130_048
    ),
    "falcon-h1-3b": falcon(
        2560, 32, 1280, 256, 6144, plain_mamba2(2560, 32, 128, 2 * 256), 65_536
    ),
    "falcon-h1-0.5b": falcon(
        K, 36, 512, 128, 2048, plain_mamba2(K, 24, 64, 2 * 128), 32_784
    ),
    "jamba-v0.1": jamba(4096, 32, K, 14_336, 256),
    "jamba-1.5-large": jamba(8192, 72, K, 24_576, 512),
    "mamba-2.8b": mamba(2560, 64, 160, 50_280, 1),
    "falcon-mamba-7b": mamba(4096, 64, 256, 65_024),
    "mamba-codestral-7b": 64 * mamba2(4096, 128, 64) + 4096 + 2 * 32_768 * 4096,
    "lfm2-350m": lfm2(K, 16, 6, 4608),
    "lfm2-700m": lfm2(1536, 16, 6, 6912),
    "lfm2-1.2b": lfm2(2048, 16, 6, 8192),
    "lfm2-2.6b": lfm2(2048, 30, 8, 10_752),
    "lfm2-8b-a1b": lfm2(
        2048, 24, 6, 0, 2 * mlp(2048, 7168) + 22 * 32 * (mlp(2048, 1792) + 2048)
    ),
    "lfm3-defaults": lfm3(),
    "ling-3-defaults": ling_3(),
    "longcat-flash": longcat(),
    "hunyuan-large": hunyuan_large(),
    "gemma-3n-e2b": gemma_3n(30, 10, 8192),
    "gemma-3n-e4b": gemma_3n(35, 15, 16_384),
    "gemma-4-e2b": gemma_4(1536, 35, 8, 5, (1, 1), 6144, 20, 256, wide=2),
    "gemma-4-e4b": gemma_4(2560, 42, 8, 6, (2, 2), 10_240, 18, 256),
    "gemma-4-31b": gemma_4(5376, 60, 32, 6, (16, 4), 21_504, values=0),
    # 128 experts beside the MLP, three norms, a scale of the router, one of each.
    "gemma-4-26b-a4b": gemma_4(
        2816, 30, 16, 6, (8, 2), 2112, values=0,
        mixture=128 * (mlp(2816, 704) + 2816) + 3 * 2816 + 2816 + 128,
    ),
    "deepseek-v3.2": deepseek(
        7168, 61, 128, 1536, (3, 18_432), (256, 1, 2048), 129_280
    )
    + 61 * indexed(7168, 1536, 64),
    "glm-5": glm_5(),
    "mimo-v2-flash": mimo(),
    "nemotron-3-super-120b-a12b": nemotron_super(),
    "ernie-4.5-300b-a47b": ernie(
        8192,
        8192,
        K,
        3 * mlp(8192, 28_672) + 51 * (64 * (mlp(8192, 3584) + 8192) + 64),
        54,
    )
    + 103_424 * 8192,
    "openelm-270m": openelm(
        1280, 64, [12] * 5 + [16] * 7 + [20] * 4, between(0.5, 4, 16)
    ),
    "openelm-1.1b": openelm(
        2048, 64, [16] * 3 + [20] * 7 + [24] * 8 + [28] * 6 + [32] * 4,
        between(0.5, 4, 28),
    ),
    "openelm-3b": openelm(
        3072, 128, [12] * 4 + [16] * 14 + [20] * 12 + [24] * 6, between(0.5, 4, 36)
    ),
    "nemotron-super-49b": nemotron_nas(
        8192, K, 49, 80,
        49 * 28_672 + 10 * 7168 + 8 * 5632 + 6 * 14_336 + 6 * 2816 + 17_920,
    ),
    "nemotron-ultra-253b": nemotron_nas(
        16_384, K, 64, 81,
        34 * 53_248 + 19 * 26_624 + 10 * 21_504 + 6 * 16_128 + 4 * 37_376 + 2 * 32_000
        + 5376 + 10_752 + 399_360 + 425_984 + 343_040 + 301_056,
    ),
}  # fmt: skip
