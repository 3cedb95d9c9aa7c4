"""What a reader, a check or a conversion found, itemised with file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or remark.

    severity: error (a picture or box cannot be used as it stands), warning (usable, but probably
        not what was meant), info (a remark for the record).
    code: short stable name of the kind, such as "box-outside".
    file, line: where it stands, relative to the root of the data set; line 0 when it has none.
    picture: the picture concerned as the data set names it, else "".
    """

    severity: Severity
    code: str
    message: str
    file: str = ""
    line: int = 0
    picture: str = ""

    @property
    def where(self) -> str:
        """`file:line`, or what of it is known."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        where = self.where if self.file else self.picture
        return f"{where}: " * bool(where) + f"{self.severity}: {self.message} [{self.code}]"


@dataclass
class Report:
    """Findings in the order in which they were made."""

    findings: list[Finding] = field(default_factory=list)

    def add(
        self,
        severity: Severity,
        code: str,
        message: str,
        *,
        file: str = "",
        line: int = 0,
        picture: str = "",
    ) -> None:
        self.findings.append(Finding(severity, code, message, file, line, picture))

    def extend(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    def __len__(self) -> int:
        return len(self.findings)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def by_code(self) -> dict[str, int]:
        """Number of findings of each code, codes in alphabetical order."""
        return dict(sorted(Counter(finding.code for finding in self.findings).items()))

    def to_json(self) -> dict[str, object]:
        """Counts and every finding, for machines."""
        return {
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "infos": self.count("info"),
            "by_code": self.by_code(),
            "findings": [asdict(finding) for finding in self.findings],
        }
