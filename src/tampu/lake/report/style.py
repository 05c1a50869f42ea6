"""The looks of the report: one style sheet, for light and dark, wide and narrow, and paper."""

from __future__ import annotations

from tampu.palette import PALETTE

STYLE = (
    PALETTE
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums}
header,main{max-width:72rem;margin:0 auto;padding:1rem}
header{padding-top:2rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}
header p{margin:.3rem 0 0;color:var(--soft)}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));padding-bottom:4rem}
section,.cards li{background:var(--card);border:1px solid var(--line);border-radius:10px}
section{padding:1rem 1.1rem 1.1rem;min-width:0}
section:has(>.scroll),.cards,.none{grid-column:1/-1}
h2{font-size:1.1rem;margin:0}
section>p{margin:.15rem 0 .8rem;color:var(--soft);font-size:.9rem}
ul{list-style:none;margin:0;padding:0}
.cards{display:grid;gap:.75rem;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr))}
.cards li{padding:.75rem .9rem}
.cards span,.cards small{display:block;color:var(--soft);font-size:.82rem}
.cards b{display:block;font-size:1.6rem;line-height:1.25;font-weight:650}
.cards .bad b,.bad{color:var(--red)}.cards .warn b{color:var(--amber)}.good{color:var(--green)}
.chart{display:grid;grid-template-columns:auto 1fr;gap:0 .5rem}
.plot{position:relative;height:12rem}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.scale{display:flex;flex-direction:column;justify-content:space-between;text-align:right;color:var(--soft);
font-size:.75rem;line-height:1;margin:-.375rem 0}
.times{grid-column:2;display:flex;justify-content:space-between;color:var(--soft);font-size:.75rem;padding-top:.35rem}
.week .plot{height:13rem}
.week .scale{justify-content:space-around;margin:0}
.week .times span{flex:1}
.grid line{stroke:var(--line);vector-effect:non-scaling-stroke}
.fill,.under{fill:var(--tone)}
.line{fill:none;stroke:var(--tone);stroke-width:2;stroke-linejoin:round;stroke-linecap:round;vector-effect:non-scaling-stroke}
.under{opacity:.16;stroke:none}
.hint{fill:transparent}.hint:hover{fill:var(--soft);fill-opacity:.15}
.mark{stroke:var(--red);stroke-dasharray:5 4;vector-effect:non-scaling-stroke}
.level{position:absolute;right:0;color:var(--red);font-size:.75rem;line-height:1.2}
.cell{fill:var(--blue)}.cell:hover{stroke:var(--ink);stroke-width:2;vector-effect:non-scaling-stroke}
.blue{--tone:var(--blue)}.green{--tone:var(--green)}.amber{--tone:var(--amber)}
.red{--tone:var(--red)}.violet{--tone:var(--violet)}.grey{--tone:var(--grey)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.82rem;color:var(--soft);padding-top:.5rem}
.legend li{overflow-wrap:anywhere}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:3px;margin-right:.4rem;background:var(--tone)}
.scroll{overflow-x:auto;margin:0 -1.1rem;padding:0 1.1rem}
.chart~.scroll{margin-top:.8rem}
table{border-collapse:collapse;width:100%;font-size:.88rem}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th{color:var(--soft);font-weight:500;text-align:left;white-space:nowrap;font-size:.8rem}
th,td{padding:.4rem .8rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
td b{display:inline-block;min-width:6rem;font-weight:600;overflow-wrap:anywhere}
td small{color:var(--soft)}
.n,td:last-child>span{white-space:nowrap}.n{text-align:right}
.error{display:block;min-width:16rem;max-width:34rem;white-space:pre-wrap}
.ids{font-size:.85em;color:var(--soft);min-width:9rem}
.tiny{width:6rem;height:1.3rem;display:block}
.tiny polyline{fill:none;stroke:var(--blue);stroke-width:1.5;vector-effect:non-scaling-stroke}
details{margin-top:.7rem;font-size:.88rem}
summary{cursor:pointer;color:var(--soft)}
details .scroll{max-height:20rem;overflow:auto}
@media print{body{background:#fff}section{break-inside:avoid}details{display:none}}
"""
)
