"""QR codes as SVG, by segno of the extra ``qr``."""

from __future__ import annotations

from io import BytesIO

from paymentsdk.sandbox.answers import Refused

__all__ = ["svg"]


def svg(text: str) -> bytes:
    """Return the QR code of *text*, dark on transparent, with the quiet zone that scanners need.

    Raises:
        Refused: segno is not installed, and the message says how to get it; or *text* is too long for any code.
    """
    try:
        import segno  # noqa: PLC0415 - an extra
    except ImportError:
        raise Refused(501, "not_installed", "pip install paymentsdk[qr]") from None
    try:
        code = segno.make_qr(text, error="m")
    except segno.DataOverflowError:
        raise Refused(400, "bad_request", "the text is too long for a QR code") from None
    file = BytesIO()
    code.save(file, kind="svg", border=4, xmldecl=False, omitsize=True, svgclass=None, lineclass=None)
    return file.getvalue()
