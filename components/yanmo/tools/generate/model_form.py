"""A prompt in the text form of the model's training: 春眠不覺曉 as 春眠不觉晓, punctuation full-width.

What `yanmo curate` did to the training text is done to the prompt, so that the model reads characters that it
has learned. The code is curate's, found by its name: where it is not installed (OpenCC belongs to the image
`data`) the prompt stays as it is, and the log says so.
"""

from __future__ import annotations

import importlib
import logging
import re

log = logging.getLogger(__name__)
_FORMS = "yanmo.curate.text.normalize"
_NAME = re.compile(r"([a-z]+-\d+)((?:[+-][a-z_]+)*)")
"""A form and the steps that options added and left out."""


def in_form(form: str, text: str) -> str:
    """`text` in a form as an output names it (`classical-1`, `modern-1+lacuna`); "" and unknown ones change
    nothing. A line break at its end stays, as the model is to begin the next line."""
    named = _NAME.fullmatch(form)
    if not named or not text.strip():
        return text
    try:
        forms = importlib.import_module(_FORMS)
        changes = named[2].replace("+", ",").replace("-", ",no-")
        found = str(forms.normalize([text], forms.form_steps(named[1], changes)[1]).texts[0])
    except ImportError as error:
        log.warning("the prompt is read as it is, not in the model's text form %s: %s", form, error)
        return text
    except (KeyError, ValueError):  # a form of another version
        return text
    found += "\n" * text.endswith("\n")
    if found != text:
        log.info("read in the model's text form %s: %s", form, found[:100])
    return found
