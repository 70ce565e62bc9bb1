"""QR codes as SVG, by segno of the extra ``qr``."""

from __future__ import annotations

from io import BytesIO

from paymentsdk.errors import install_extra
from paymentsdk.sandbox._responses import Rejected

#: How to get what draws the codes.
INSTALL = install_extra("qr")


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
