"""Bars with the middle half of the samples, as SVG: panels under each other, from zero, readable in light and dark."""
import html

WIDTH, LABEL, BAR, GAP, TITLE = 720, 190, 16, 6, 30
STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:13px}.value{fill:#57606a}
.ground{fill:#ffffff}.ours{fill:#0969da}.peer{fill:#8c959f}.spread{stroke:#1f2328;stroke-width:1.5}.zero{stroke:#d0d7de}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.value{fill:#9198a1}.ground{fill:#0d1117}.ours{fill:#4493f8}.peer{fill:#656c76}
.spread{stroke:#e6edf3}.zero{stroke:#3d444d}}"""


def panel(top, title, bars):
    """bars: [(name, is_ours, median, (low, high), text)]; returns (svg, height)."""
    most = max(max(median, high) for _, _, median, (_, high), _ in bars) or 1
    room = WIDTH - LABEL - 150  # right of the longest bar its text must fit
    lines = [f'<text class="title" x="12" y="{top + 18}">{html.escape(title)}</text>']
    for index, (name, is_ours, median, (low, high), text) in enumerate(bars):
        y = top + TITLE + index * (BAR + GAP)
        length = max(1.5, room * median / most)
        lines.append(f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{html.escape(name)}</text>')
        lines.append(f'<rect class="{"ours" if is_ours else "peer"}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>')
        ends = [LABEL + room * edge / most for edge in (low, high)]
        if ends[1] - ends[0] >= 2:
            lines.append(f'<path class="spread" d="M{ends[0]:.1f} {y + BAR / 2}H{ends[1]:.1f}"/>')
        lines.append(f'<text class="value" x="{max(LABEL + length, ends[1]) + 6:.1f}" y="{y + 12}">{html.escape(text)}</text>')
    height = TITLE + len(bars) * (BAR + GAP)
    lines.append(f'<path class="zero" d="M{LABEL - .5} {top + TITLE - 3}V{top + height - 3}"/>')
    return "\n".join(lines), height + 8


def svg(title, panels):
    """panels: [(title, bars)]"""
    body, top = [], 6
    for heading, bars in panels:
        drawn, height = panel(top, heading, bars)
        body.append(drawn)
        top += height
    label = html.escape(title, quote=True)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img" aria-label="{label}">\n<title>{label}</title>\n'
            f'<style>{STYLE}</style>\n<rect class="ground" width="{WIDTH}" height="{top}" rx="6"/>\n' + "\n".join(body) + "\n</svg>\n")
