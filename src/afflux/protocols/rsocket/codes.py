"""Error codes of RSocket 1.0 (temporary)."""
from __future__ import annotations

from enum import IntEnum

from afflux.core import errors


class Code(IntEnum):
    INVALID_SETUP=1; UNSUPPORTED_SETUP=2; REJECTED_SETUP=3; REJECTED_RESUME=4; CONNECTION_ERROR=0x101; CONNECTION_CLOSE=0x102
    APPLICATION_ERROR=0x201; REJECTED=0x202; CANCELED=0x203; INVALID=0x204
def error_for(code, data, stream, limits):
    text=data[:limits.error_text_bytes[1]].decode('utf-8','replace')
    k={0x202:errors.Rejected,0x203:errors.Canceled,0x204:errors.Invalid}.get(code)
    if k: return k(text,code=code,stream=stream)
    if stream==0: return (errors.SetupRefused if code<=4 else errors.ConnectionClosed)(text,code=code,stream=0)
    return errors.ApplicationError(code,text,stream=stream)
def code_for(e, limits):
    if isinstance(e,errors.ApplicationError): return e.code,e.message
    for k,c in ((errors.Rejected,0x202),(errors.Canceled,0x203),(errors.Invalid,0x204)):
        if isinstance(e,k): return c,e.message
    return 0x201,"application error"
