//! The style sheet of the page. Colours follow what the reader's system prefers; nothing is told by colour alone.

/// Colours of epochs, one after the other.
pub(super) const EPOCHS: usize = 6;

/// The sheet.
pub(super) const SHEET: &str = "
:root{color-scheme:light dark;
--paper:#fbfbf9;--card:#fff;--ink:#1d2430;--soft:#5c6675;--faint:#dfe3e8;--line:#eceef1;
--good:#1a7f4b;--bad:#c2261f;--bad-paper:#fdecea;--fault:#b7791f;--fault-paper:#f6e3bd;--alive:#c9d0d8;
--e0:#2f6fb3;--e1:#7a4fa3;--e2:#0f8a83;--e3:#b0527d;--e4:#5a7d1f;--e5:#a65a1f}
@media(prefers-color-scheme:dark){:root{
--paper:#14181f;--card:#1b212a;--ink:#e6e9ee;--soft:#9aa5b4;--faint:#333c48;--line:#28303a;
--good:#4cc38a;--bad:#ff7b72;--bad-paper:#3a1d1d;--fault:#e0a84a;--fault-paper:#4b3a1a;--alive:#48525f;
--e0:#6aa7e8;--e1:#b48be0;--e2:#45c0b8;--e3:#e08bb4;--e4:#9fc25a;--e5:#e0975a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,'Segoe UI','DejaVu Sans',sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px}
h2{font-size:19px;margin:44px 0 6px}
h3{font-size:15px;margin:0}
p{margin:4px 0 12px;max-width:80ch;text-wrap:balance}
.soft,small{color:var(--soft)}
code{font:13px/1.4 ui-monospace,'DejaVu Sans Mono',monospace}
.good{color:var(--good)}.bad{color:var(--bad)}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:22px 0 10px;padding:0;list-style:none}
.tiles li{flex:1 1 150px;background:var(--card);border:1px solid var(--faint);border-radius:10px;padding:12px 16px}
.tiles b{display:block;font-size:30px;line-height:1.15;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:13px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:12px 0;font-size:13px}
dt{color:var(--soft)}dd{margin:0}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--faint);border-radius:10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;text-align:left;border-top:1px solid var(--line);vertical-align:top}
thead th{border-top:0;color:var(--soft);font-size:13px;font-weight:600;vertical-align:bottom}
tbody th{font-weight:500;white-space:nowrap}
.matrix td,.matrix thead th+th{text-align:center}
.matrix td{font-size:14px;padding:4px 2px}
.matrix thead th+th{padding:10px 2px;height:158px;min-width:38px}
.matrix thead span{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap}
.matrix .number{text-align:right;color:var(--soft);padding-right:14px}
.matrix tbody tr:hover{background:var(--line)}
.matrix .none{color:var(--soft);opacity:.55}
.matrix .broken{background:var(--bad-paper);color:var(--bad);font-weight:700}
.matrix tfoot th,.matrix tfoot td{border-top:2px solid var(--faint);font-weight:600}
.runs td:last-child{white-space:nowrap}
.chip{display:inline-block;margin:1px 4px 1px 0;padding:0 7px;border-radius:9px;background:var(--line);
font-size:12px;white-space:nowrap}
.flaws{margin:6px 0;padding:8px 12px 8px 28px;background:var(--bad-paper);border-radius:8px;font-size:13px}
.flaws b{color:var(--bad)}
figure{margin:14px 0;padding:14px 16px 8px;background:var(--card);border:1px solid var(--faint);border-radius:10px}
figcaption{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;margin-bottom:8px}
figure>div{overflow-x:auto}
svg{display:block;width:100%;min-width:760px;height:auto}
svg text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:var(--ink)}
svg .whom{font-size:9.5px;fill:var(--soft);pointer-events:none}
svg .axis{fill:var(--soft)}svg .on{fill:#fff;font-weight:600;pointer-events:none}
@media(prefers-color-scheme:dark){svg .on{fill:#10141a}}
svg .grid{stroke:var(--line)}svg .edge{stroke:var(--soft);stroke-dasharray:3 3}
svg .life{fill:var(--alive)}
svg .fault{fill:var(--fault-paper);stroke:var(--fault)}svg .mark{fill:var(--fault)}
svg .failed{fill:none;stroke-width:1.3}
svg .flaw{stroke:var(--bad);stroke-width:1.5}svg .tip{fill:var(--bad)}
.e0{fill:var(--e0);stroke:var(--e0)}.e1{fill:var(--e1);stroke:var(--e1)}.e2{fill:var(--e2);stroke:var(--e2)}
.e3{fill:var(--e3);stroke:var(--e3)}.e4{fill:var(--e4);stroke:var(--e4)}.e5{fill:var(--e5);stroke:var(--e5)}
.key{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:13px;color:var(--soft);margin:6px 0 0;padding:0;
list-style:none}
.key svg{display:inline-block;width:22px;min-width:0;height:11px;margin-right:6px;vertical-align:-1px}
@media print{main{max-width:none;padding:0}.wide,figure{break-inside:avoid}}
";
