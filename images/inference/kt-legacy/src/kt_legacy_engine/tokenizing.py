"""The model's own tokenizer and chat template, from the files beside its config.json."""

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

# As transformers renders them: templates are written for these two.
_ENVIRONMENT = {"trim_blocks": True, "lstrip_blocks": True}


class UnusableModelFolder(Exception):
    """A file of the model's folder is missing or is not what it should be."""


class FileTokenizer:
    """`tokenizer.json`, `tokenizer_config.json` and, where there is one, `generation_config.json`."""

    def __init__(self, folder: Path, system_message: str) -> None:
        # Only here: tests of everything else need neither.
        import jinja2.sandbox  # noqa: PLC0415
        import tokenizers  # noqa: PLC0415

        config = _read(folder / "tokenizer_config.json")
        self._special = {
            name: _text(config[name]) for name in ("bos_token", "eos_token") if config.get(name)
        }
        self._system_message = system_message
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing more special
            raise UnusableModelFolder(f"{path} can't be used: {error}") from error
        self._begins_with = self._beginning(config)
        self._ends = self._end_tokens(folder)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(**_ENVIRONMENT)
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            self._template = environment.from_string(config["chat_template"])
        except (KeyError, TypeError, jinja2.TemplateError) as error:
            raise UnusableModelFolder(
                f"{folder / 'tokenizer_config.json'} holds no usable chat_template: {error!r}"
            ) from error
        self._template_errors = (jinja2.TemplateError, TypeError, ValueError)

    @property
    def end_tokens(self) -> frozenset[int]:
        return self._ends

    @property
    def vocabulary(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        tokens = self._encode(text)
        if self._begins_with is not None and tokens[:1] != [self._begins_with]:
            tokens.insert(0, self._begins_with)
        return tokens

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        if self._system_message and all(m["role"] != "system" for m in messages):
            messages = [{"role": "system", "content": self._system_message}, *messages]
        try:
            text = self._template.render(
                messages=list(messages), add_generation_prompt=True, **self._special
            )
        except self._template_errors as error:
            raise ValueError(f"the model's chat template refuses this: {error}") from error
        return self._encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def raw(self, token: int) -> bytes:
        return _bytes(self._tokenizer.id_to_token(token) or "")

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _beginning(self, config: dict[str, Any]) -> int | None:
        if not config.get("add_bos_token") or "bos_token" not in self._special:
            return None
        found = self._tokenizer.token_to_id(self._special["bos_token"])
        return None if found is None else int(found)

    def _end_tokens(self, folder: Path) -> frozenset[int]:
        path = folder / "generation_config.json"
        said = _read(path).get("eos_token_id") if path.exists() else None
        ends = {said} if isinstance(said, int) else set(said or ())
        if (token := self._special.get("eos_token")) is not None:
            ends.add(self._tokenizer.token_to_id(token))
        if not (found := frozenset(ends - {None})):
            raise UnusableModelFolder(f"{folder} does not say which token ends a reply")
        return found


def default_sampling(folder: Path) -> tuple[float, float]:
    """Temperature and top_p as the model's makers want them; 1 and 1 where they don't say."""
    path = folder / "generation_config.json"
    said = _read(path) if path.exists() else {}
    if said.get("do_sample") is False:
        # Always the likeliest.
        return 0.0, 1.0
    temperature, top_p = said.get("temperature"), said.get("top_p")
    return (
        1.0 if temperature is None else float(temperature),
        1.0 if top_p is None else float(top_p),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UnusableModelFolder(f"{path} can't be read: {error}") from error
    if not isinstance(found, dict):
        raise UnusableModelFolder(f"{path} is not a table of settings")
    return found


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _now(layout: str) -> str:
    return datetime.now(timezone.utc).strftime(layout)


def _letters() -> dict[str, int]:
    """Byte-level BPE writes every byte as one printable letter: which byte each letter is."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in plain}
    rest = (byte for byte in range(256) if byte not in plain)
    return letters | {chr(256 + n): byte for n, byte in enumerate(rest)}


_LETTERS = _letters()


def _bytes(token: str) -> bytes:
    if all(letter in _LETTERS for letter in token):
        return bytes(_LETTERS[letter] for letter in token)
    return token.encode()
