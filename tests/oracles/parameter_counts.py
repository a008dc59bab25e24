"""Parameters of public models, written out model by model from their papers' shapes.

Each is what its checkpoint's tensors add up to, counted by hand: embedding, layers,
last norm, head. No line is shared with `hetopt.catalogue.architectures`, and no
configuration is read.
"""

K = 1024


def llama(h: int, n: int, kv: int, i: int, v: int, tied: bool = False) -> int:
    """Attention with `kv` wide keys, gate, up and down, two norms."""
    layer = 2 * h * h + 2 * h * kv + 3 * h * i + 2 * h
    return n * layer + h + (1 if tied else 2) * v * h


def qwen2(h: int, n: int, kv: int, i: int, v: int, tied: bool = False) -> int:
    """Llama with biases of queries, keys and values."""
    return llama(h, n, kv, i, v, tied) + n * (h + 2 * kv)


def qwen3(
    h: int, n: int, q: int, i: int, experts: int = 0, kv: int = 1024, ends: int = 2
) -> int:
    """Heads of 128 with a norm of queries and of keys; experts, and their router."""
    mlp = experts * (3 * h * i + h) if experts else 3 * h * i
    layer = 2 * h * q + 2 * h * kv + 2 * 128 + 2 * h + mlp
    return n * layer + h + ends * 151_936 * h


def mixtral(h: int, n: int, i: int, v: int) -> int:
    """Eight experts and their router in every layer."""
    layer = 2 * h * h + 2 * h * K + 8 * 3 * h * i + 8 * h + 2 * h
    return n * layer + h + 2 * v * h


def deepseek(
    h: int, n: int, heads: int, low: int, dense: tuple[int, int], moe: tuple[int, ...],
    v: int,
) -> int:  # fmt: skip
    """Latent attention: 512 compressed, 64 rotary, heads of 128 + 64 and 128."""
    queries = h * low + low + low * heads * 192 if low else h * heads * 192
    attention = queries + h * (512 + 64) + 512 + 512 * heads * 256 + heads * 128 * h
    first, i = dense
    routed, shared, each = moe
    sparse = (routed + shared) * 3 * h * each + routed * h
    mlps = first * 3 * h * i + (n - first) * sparse
    return n * (attention + 2 * h) + mlps + h + 2 * v * h


def gemma(
    h: int, n: int, q: int, kv: int, i: int, v: int, norms: int, of_heads: int = 0
) -> int:
    """One matrix for embedding and head; `of_heads` wide norms of queries and keys."""
    layer = 2 * h * q + 2 * h * kv + 3 * h * i + norms * h + 2 * of_heads
    return n * layer + h + v * h


def gpt_oss(n: int, experts: int) -> int:
    """Biases everywhere, a sink for each of 64 heads."""
    h, q, kv = 2880, 64 * 64, 8 * 64
    attention = 2 * h * q + 2 * h * kv + (q + 2 * kv + h) + 64
    expert = 3 * h * h + 2 * h + h
    layer = attention + experts * expert + experts * (h + 1) + 2 * h
    return n * layer + h + 2 * 201_088 * h


def llama4(experts: int, sparse: int) -> int:
    """48 layers, `sparse` of them with experts and a shared one of 8192."""
    h, q, kv = 5120, 40 * 128, 8 * 128
    attention = 48 * (2 * h * q + 2 * h * kv + 2 * h)
    mixture = sparse * ((experts + 1) * 3 * h * 8192 + experts * h)
    dense = (48 - sparse) * 3 * h * 16_384
    return attention + mixture + dense + h + 2 * 202_048 * h


def mamba2(h: int, heads: int, width: int, states: int = 2 * 8 * 128) -> int:
    """In, convolution with bias, three of each head, gated norm, out; its own norm."""
    inner = heads * width
    convolved = inner + states
    return (
        h * (2 * inner + states + heads) + 4 * convolved + convolved + 3 * heads
        + inner + inner * h + h
    )  # fmt: skip


def nemotron(h: int, mixers: int, attention: int, mlps: int) -> int:
    """Sums of blocks, each with one norm, and both ends."""
    return mixers + attention + mlps + h + 2 * 131_072 * h


def granite(h: int, heads: int, kv: int, experts: int, each: int, shared: int) -> int:
    """36 layers of Mamba-2 and 4 of attention, with experts and a shared MLP."""
    mixers = 36 * mamba2(h, heads, 64, 2 * 128) + 4 * (2 * h * h + 2 * h * kv + h)
    mlps = 40 * (experts * (3 * h * each + h) + 3 * h * shared + h)
    return mixers + mlps + h + 100_352 * h


def ernie(h: int, q: int, kv: int, mlps: int, n: int) -> int:
    """Llama's layers around MLPs of all kinds, and one matrix at both ends."""
    return n * (2 * h * q + 2 * h * kv + 2 * h) + mlps + h + 103_424 * h


def glm45(h: int, n: int, first: int, i: int, each: int, experts: int, qk: int) -> int:
    """96 heads of 128 with biases but of the output."""
    q, kv = 96 * 128, 8 * 128
    attention = 2 * h * q + 2 * h * kv + q + 2 * kv + 2 * qk + 2 * h
    sparse = (experts + 1) * 3 * h * each + experts * h
    mlps = first * 3 * h * i + (n - first) * sparse
    return n * attention + mlps + h + 2 * 151_552 * h


def gpt(h: int, n: int, v: int, beside: int, ends: int = 1) -> int:
    """12 h^2 and 13 h a layer, the last norm of 2 h, and what is `beside`."""
    return n * (12 * h * h + 13 * h) + 2 * h + ends * v * h + beside


COUNTS = {
    "llama-2-7b": llama(4096, 32, 4096, 11_008, 32_000),
    "llama-2-70b": llama(8192, 80, K, 28_672, 32_000),
    "llama-3-8b": llama(4096, 32, K, 14_336, 128_256),
    "llama-3.1-70b": llama(8192, 80, K, 28_672, 128_256),
    "llama-3.1-405b": llama(16_384, 126, K, 53_248, 128_256),
    "llama-3.2-1b": llama(2048, 16, 512, 8192, 128_256, tied=True),
    "llama-4-scout": llama4(16, 48),
    "llama-4-maverick": llama4(128, 24),
    "qwen2.5-0.5b": qwen2(896, 24, 128, 4864, 151_936, tied=True),
    "qwen2.5-7b": qwen2(3584, 28, 512, 18_944, 152_064),
    "qwen2.5-14b": qwen2(5120, 48, K, 13_824, 152_064),
    "qwen2.5-72b": qwen2(8192, 80, K, 29_568, 152_064),
    # 64 experts of 2560, a shared one of 20480 and its gate, no dense MLP.
    "qwen2-57b-a14b": qwen2(3584, 28, 512, 0, 151_936)
    + 28 * 3584 * (64 * 3 * 2560 + 64 + 3 * 20_480 + 1),
    "qwen3-0.6b": qwen3(K, 28, 2048, 3072, ends=1),
    "qwen3-8b": qwen3(4096, 36, 4096, 12_288),
    "qwen3-32b": qwen3(5120, 64, 8192, 25_600),
    "qwen3-30b-a3b": qwen3(2048, 48, 4096, 768, 128, kv=512),
    "qwen3-235b-a22b": qwen3(4096, 94, 8192, 1536, 128, kv=512),
    "mixtral-8x7b": mixtral(4096, 32, 14_336, 32_000),
    "mixtral-8x22b": mixtral(6144, 56, 16_384, 32_768),
    "deepseek-v2-lite": deepseek(2048, 27, 16, 0, (1, 10_944), (64, 2, 1408), 102_400),
    "deepseek-v2": deepseek(5120, 60, 128, 1536, (1, 12_288), (160, 2, 1536), 102_400),
    "deepseek-v3": deepseek(7168, 61, 128, 1536, (3, 18_432), (256, 1, 2048), 129_280),
    "kimi-k2": deepseek(7168, 61, 64, 1536, (1, 18_432), (384, 1, 2048), 163_840),
    "gemma-7b": gemma(3072, 28, 4096, 4096, 24_576, 256_000, 2),
    "gemma-2-2b": gemma(2304, 26, 2048, K, 9216, 256_000, 4),
    "gemma-2-9b": gemma(3584, 42, 4096, 2048, 14_336, 256_000, 4),
    "gemma-3-1b": gemma(1152, 26, K, 256, 6912, 262_144, 4, of_heads=256),
    "gemma-3-27b": gemma(5376, 62, 4096, 2048, 21_504, 262_208, 4, of_heads=128),
    "gpt-oss-20b": gpt_oss(24, 32),
    "gpt-oss-120b": gpt_oss(36, 128),
    "nemotron-h-8b": nemotron(
        4096,
        24 * mamba2(4096, 128, 64),
        4 * (2 * 4096 * 4096 + 2 * 4096 * K + 4096),
        24 * (2 * 4096 * 21_504 + 4096),
    ),
    "nemotron-nano-9b-v2": nemotron(
        4480,
        27 * mamba2(4480, 128, 80),
        4 * (2 * 4480 * 5120 + 2 * 4480 * K + 4480),
        25 * (2 * 4480 * 15_680 + 4480),
    ),
    "nemotron-3-nano-30b-a3b": nemotron(
        2688,
        23 * mamba2(2688, 64, 64),
        6 * (2 * 2688 * 4096 + 2 * 2688 * 256 + 2688),
        23 * (128 * 2 * 2688 * 1856 + 128 * 2688 + 2 * 2688 * 3712 + 2688),
    ),
    # Keys of 256, biases of queries, keys and values.
    "glm-4-9b": llama(4096, 40, 256, 13_696, 151_552) + 40 * (4096 + 2 * 256),
    # Two norms more.
    "glm-4-32b-0414": llama(6144, 61, 256, 23_040, 151_552) + 61 * 2 * 6144,
    "granite-4.0-micro": llama(2560, 40, 512, 8192, 100_352, tied=True),
    "granite-4.0-h-tiny": granite(1536, 48, 512, 64, 512, 1024),
    "granite-4.0-h-small": granite(4096, 128, K, 72, 768, 1536),
    "bamba-9b": 29 * mamba2(4096, 128, 64, 2 * 128)
    + 3 * (2 * 4096**2 + 2 * 4096 * K + 4096)
    + 32 * (3 * 4096 * 14_336 + 4096)
    + 4096
    + 2 * 128_256 * 4096,
    "ernie-4.5-0.3b": ernie(K, 2048, 256, 18 * 3 * K * 3072, 18),
    # 64 experts and two shared ones behind the first layer, each router's correction.
    "ernie-4.5-21b-a3b": ernie(
        2560,
        2560,
        512,
        3 * 2560 * 12_288 + 27 * (66 * 3 * 2560 * 1536 + 64 * 2560 + 64),
        28,
    ),
    "hunyuan-a13b": 32
    * (2 * 4096**2 + 2 * 4096 * K + 2 * 128 + 2 * 4096 + 65 * 3 * 4096 * 3072)
    + 32 * 64 * 4096
    + 4096
    + 128_167 * 4096,
    # One norm of all queries, 6144 wide, and one of all keys.
    "minimax-m2": 62 * (2 * 3072 * 6144 + 2 * 3072 * K + 6144 + K + 2 * 3072)
    + 62 * 256 * (3 * 3072 * 1536 + 3072)
    + 3072
    + 2 * 200_064 * 3072,
    "smollm3-3b": llama(2048, 36, 512, 11_008, 128_256, tied=True),
    # Queries of 10240 in a model of 5120; biases but of the output.
    "seed-oss-36b": llama(5120, 64, K, 27_648, 155_136)
    + 64 * (2 * 5120 * 5120 + 10_240 + 2 * K),
    "olmo-3-7b": llama(4096, 32, 4096, 11_008, 100_278) + 32 * 2 * 4096,
    "olmoe-1b-7b": llama(2048, 16, 2048, 0, 50_304)
    + 16 * (2 * 2048 + 64 * (3 * 2048 * K + 2048)),
    # One norm a layer, for attention and the MLP beside it.
    "command-r7b": llama(4096, 32, K, 14_336, 256_000, tied=True) - 32 * 4096,
    "exaone-4-32b": llama(5120, 64, K, 27_392, 102_400) + 64 * 2 * 128,
    "dots-llm1": llama(4096, 62, 4096, 0, 152_064)
    + 62 * 2 * 128
    + 3 * 4096 * 10_944
    + 61 * (130 * 3 * 4096 * 1408 + 128 * 4096),
    # Two matrices of an MLP, biases of all products, norms with biases.
    "starcoder2-3b": 30
    * (2 * 3072**2 + 2 * 3072 * 256 + 2 * 3072 * 12_288 + 12_288 + 7 * 3072 + 2 * 256)
    + 2 * 3072
    + 49_152 * 3072,
    "glm-4.5-air": glm45(4096, 46, 1, 10_944, 1408, 128, 0),
    "glm-4.5": glm45(5120, 92, 3, 12_288, 1536, 160, 128),
    "phi-3-mini-4k": llama(3072, 32, 3072, 8192, 32_064),
    "phi-4": llama(5120, 40, 1280, 17_920, 100_352),
    "mistral-7b-v0.1": llama(4096, 32, K, 14_336, 32_000),
    # Queries of 4096 where the model is 5120 wide.
    "mistral-nemo-12b": llama(5120, 40, K, 14_336, 131_072) - 40 * 2 * 5120 * K,
    "mistral-small-24b": llama(5120, 40, K, 32_768, 131_072) - 40 * 2 * 5120 * K,
    # One key and value of 64, one norm with a bias; 8 of 64 and two norms.
    "falcon-7b": 32 * (2 * 4544**2 + 2 * 4544 * 64 + 8 * 4544**2 + 2 * 4544)
    + 2 * 4544
    + 65_024 * 4544,
    "falcon-40b": 60 * (2 * 8192**2 + 2 * 8192 * 512 + 8 * 8192**2 + 4 * 8192)
    + 2 * 8192
    + 65_024 * 8192,
    "gpt2": gpt(768, 12, 50_257, K * 768),
    "gpt2-xl": gpt(1600, 48, 50_257, K * 1600),
    "opt-6.7b": gpt(4096, 32, 50_272, 2050 * 4096),
    "bloom-7b1": gpt(4096, 30, 250_880, 2 * 4096),
    "bloom-176b": gpt(14_336, 70, 250_880, 2 * 14_336),
    "gpt-neox-20b": gpt(6144, 44, 50_432, 0, ends=2),
}
