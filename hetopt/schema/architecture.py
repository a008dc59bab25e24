"""Architecture tells a trainer what the shape of a model leaves open."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .record import Count, Name, Record

Share = Annotated[float, Field(ge=0, le=1)]
Above = Annotated[float, Field(gt=0)]


class RopeScaling(Record):
    """Rotary positions are scaled beyond the length that they were made for.

    `linear` divides positions by `factor`; `llama3` does so for slow frequencies alone,
    between two wavelengths that the other three fields tell.
    """

    kind: Literal["linear", "llama3"]
    factor: Above
    low_freq_factor: Above | None = None
    high_freq_factor: Above | None = None
    original_length: Count | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        rest = (self.low_freq_factor, self.high_freq_factor, self.original_length)
        if self.kind == "llama3" and None in rest:
            raise ValueError(
                "rope scaling llama3 needs low_freq_factor, high_freq_factor and "
                "original_length: give all three"
            )
        return self


class Router(Record):
    """A router chooses experts; `normalised` weights of the chosen sum to one."""

    normalised: bool
    auxiliary_loss: Annotated[float, Field(ge=0)] = 0.0


class Architecture(Record):
    """A model as its own trainers know it: norms, positions, biases, dropout.

    No cost depends on it: it travels from the model's configuration to the trainer
    that runs the plan.
    """

    family: Name
    normalization: Literal["layer", "rms"]
    norm_epsilon: Above
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"]
    positions: Literal["rope", "learned"]
    longest: Count
    rope_base: Above | None = None
    rope_scaling: RopeScaling | None = None
    bias: bool = False
    qkv_bias: bool = False
    query_key_norm: bool = False
    dropout: Share = 0.0
    attention_dropout: Share = 0.0
    router: Router | None = None

    def positions_for(self, length: int) -> int:
        """Return the most positions that a trainer on sequences of `length` is told.

        Rotary ones are computed for any length, learned ones are parameters.
        """
        return max(self.longest, length) if self.positions == "rope" else self.longest

    @model_validator(mode="after")
    def _rotates(self) -> Self:
        if (self.positions == "rope") != (self.rope_base is not None):
            raise ValueError("rope_base goes with positions rope: give both or neither")
        return self
