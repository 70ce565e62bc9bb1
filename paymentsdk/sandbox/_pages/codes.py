"""QR codes as SVG, by segno of the extra ``qr``."""

from __future__ import annotations

from io import BytesIO

from paymentsdk.sandbox._responses import Rejected

#: How to get what draws the codes; in quotes, since a shell may read brackets itself.
INSTALL = "install the extra qr of paymentsdk"


def svg(text: str) -> bytes:
    """Return the QR code of *text*, dark on transparent, with the quiet zone that scanners need.

    Raises:
        Rejected: segno is not installed; the message says how to get it.
    """
    try:
        import segno  # an extra
    except ImportError:
        raise Rejected(501, "not_installed", INSTALL) from None
    file = BytesIO()
    segno.make_qr(text, error="m").save(
        file, kind="svg", border=4, xmldecl=False, omitsize=True, svgclass=None, lineclass=None
    )
    return file.getvalue()
