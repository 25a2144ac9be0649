"""Tokens with which a command that the sandbox stopped may be run again without it, if a person agrees.

A module of its own because a token is a key: it opens one command (text or words, folder,
environment, input, profile, tier), once, for `LASTS_S`, in the session that it was given to. A token
that is tried on anything else is spent. It lives in this process only, and is never written down.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandboxd.errors import EscalationRefused
from sandboxd.model import Denial, Escalation, ExecRequest

LASTS_S = 300.0
MAX_OFFERS = 256
"""Tokens at one time, over all sessions; the oldest makes room."""


@dataclass(frozen=True)
class Offer:
    """What a token stands for, and what the person is told of the run that was stopped."""

    binding: str
    expires: float
    denial: Denial
    ran: str
    """How far it got, in words."""


def binding(
    session_id: str,
    request: ExecRequest,
    *,
    cwd: str,
    environment: Mapping[str, str],
    tier: str,
) -> str:
    """Digest of everything that must be the same the second time."""
    covered = (
        session_id,
        request.command,
        request.argv,
        cwd,
        sorted(environment.items()),
        sorted(request.env.items()),
        request.env_pass,
        request.stdin,
        request.stdin_b64,
        request.stdin_open,
        request.profile,
        tier,
    )
    return hashlib.blake2b(repr(covered).encode(errors="surrogatepass")).hexdigest()


class Escalations:
    """The tokens that can still be used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offers: dict[str, Offer] = {}

    def offer(self, bound_to: str, denial: Denial, ran: str) -> Escalation:
        """A new token for what `bound_to` covers."""
        self._sweep()
        while len(self._offers) >= MAX_OFFERS:
            del self._offers[next(iter(self._offers))]
        token = secrets.token_urlsafe(24)
        self._offers[token] = Offer(bound_to, self._clock() + LASTS_S, denial, ran)
        return Escalation(token=token, expires_s=LASTS_S)

    def redeem(self, token: str, bound_to: str) -> Offer:
        """Spend a token. Raises EscalationRefused, the same for every reason why it is no good."""
        self._sweep()
        offer = self._offers.pop(token, None)
        if offer is None or not secrets.compare_digest(offer.binding, bound_to):
            raise EscalationRefused(
                "this escalation token is not good for this command: it was used, it is too old, or it "
                "belongs to another command, folder, environment, tier or session",
                hint="run the command without it; when the sandbox stops it again, there is a new one",
            )
        return offer

    def give_back(self, token: str, offer: Offer) -> None:
        """Nobody could be asked after all: it is as if it had not been used."""
        self._offers[token] = offer

    def _sweep(self) -> None:
        now = self._clock()
        for token in [token for token, offer in self._offers.items() if offer.expires <= now]:
            del self._offers[token]
