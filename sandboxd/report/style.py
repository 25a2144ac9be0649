"""The look of the page, and its few lines of script: everything it needs, nothing from elsewhere.

This is text for a browser and kept apart so that `page` is only about what is shown.
"""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5c6777;--line:#e3e7ed;
--code:#f2f4f8;--accent:#3459d6;--ok:#1f9d63;--answer:#3d8fb8;--failed:#d6473c;--refused:#c0392b;
--judged:#7a6fd0;--running:#98a2b3;--ask:#c98612;
--layer-agent:#e0932f;--layer-harness:#d6473c;--layer-workflow:#2f9fb8;--layer-environment:#9a5fd0;
--layer-provider:#4a7be0;--layer-operator:#2f9d6a;--layer-unknown:#98a2b3;
--add:#e3f6ea;--add-ink:#14693f;--del:#fde8e6;--del-ink:#a02a20}
@media(prefers-color-scheme:dark){:root{--bg:#11151b;--card:#191f28;--ink:#e4e9f0;--soft:#93a0b2;
--line:#2a323e;--code:#131921;--accent:#86a2ff;--ok:#3fc488;--answer:#63b5dd;--failed:#f0766b;
--refused:#ef6a5e;--judged:#a79df2;--ask:#e6ad45;--add:#12301f;--add-ink:#7fdba8;--del:#381a18;
--del-ink:#f4a49c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",sans-serif;-webkit-font-smoothing:antialiased}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:22px;margin:0;letter-spacing:-.01em}
h2{font-size:13px;margin:36px 0 12px;color:var(--soft);text-transform:uppercase;letter-spacing:.07em}
code,pre,.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
.sub{color:var(--soft);margin:4px 0 0;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.top{display:grid;grid-template-columns:1fr auto;gap:16px;margin-top:24px}
.numbers{display:grid;grid-template-columns:repeat(4,1fr);gap:12px}
.number-card{padding:14px 16px}.number-card b{display:block;font-size:26px;line-height:1.15;
font-weight:650;font-variant-numeric:tabular-nums}.number-card span{color:var(--soft);font-size:13px}
.number-card.bad b{color:var(--failed)}.number-card.warn b{color:var(--ask)}
.why{display:flex;gap:20px;padding:14px 20px;align-items:center}
.ring{width:132px;height:132px;flex:none}.ring circle{fill:none;stroke-width:20}.ring .track{stroke:var(--line)}
.ring text{text-anchor:middle;fill:var(--ink)}.ring .number{font-size:30px;font-weight:650}
.ring .label{font-size:12px;fill:var(--soft)}
.legend{list-style:none;margin:0;padding:0;font-size:13.5px;min-width:190px}
.legend li{display:flex;gap:8px;align-items:center;padding:1px 0}.legend i{width:10px;height:10px;border-radius:3px;flex:none}
.legend b{margin-left:auto;padding-left:14px;font-variant-numeric:tabular-nums;font-weight:600}
.strip-card{padding:14px 16px 8px;margin-top:16px}.strip{width:100%;height:56px;display:block}
.strip line{stroke:var(--line)}.strip rect:hover{opacity:.7}.strip-times{display:flex;
justify-content:space-between;color:var(--soft);font-size:12px}
.o-ok{fill:var(--ok)}.o-answer{fill:var(--answer)}.o-failed{fill:var(--failed)}.o-refused{fill:var(--refused)}
.o-judged{fill:var(--judged)}.o-running{fill:var(--running)}
.filters{display:flex;gap:8px;flex-wrap:wrap;margin:0 0 12px}
.filters button{font:inherit;font-size:13px;border:1px solid var(--line);background:var(--card);color:var(--ink);
border-radius:99px;padding:4px 12px;cursor:pointer}.filters button[aria-pressed=true]{background:var(--ink);
color:var(--bg);border-color:var(--ink)}
.call{margin:0 0 8px;overflow:hidden;border-left:4px solid var(--running)}
.call.ok{border-left-color:var(--ok)}.call.answer{border-left-color:var(--answer)}
.call.failed{border-left-color:var(--failed)}.call.refused{border-left-color:var(--refused)}
.call.judged{border-left-color:var(--judged)}.call:target{outline:2px solid var(--accent)}
.call>summary{list-style:none;cursor:pointer;padding:10px 14px;display:grid;
grid-template-columns:74px minmax(0,1fr) auto;gap:12px;align-items:baseline}
.call>summary::-webkit-details-marker{display:none}.call>summary:hover{background:var(--code)}
.when{color:var(--soft);font-variant-numeric:tabular-nums;font-size:13px}
.call>summary>*{min-width:0}
.command{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;display:block}
.call[open] .command{white-space:pre-wrap;overflow-wrap:anywhere}
.marks{display:flex;gap:6px;align-items:center;flex-wrap:wrap;justify-content:flex-end}
.mark{font-size:12px;border-radius:5px;padding:1px 7px;background:var(--code);color:var(--soft);white-space:nowrap}
.mark.mutating{color:var(--ask)}.mark.destructive,.mark.unparsed{color:var(--failed);font-weight:600}
.mark.refuse{background:var(--refused);color:#fff}.mark.ask{background:var(--ask);color:#fff}
.mark.person,.mark.caller,.mark.session{color:var(--accent)}.mark.exit-bad{color:var(--failed);font-weight:600}
.mark.time{min-width:64px;text-align:right;background:none;font-variant-numeric:tabular-nums}
.more{padding:4px 14px 14px 100px;border-top:1px solid var(--line)}
.more h3{font-size:12px;color:var(--soft);margin:14px 0 4px;font-weight:600;letter-spacing:.02em}
.more p,.more ul{margin:2px 0}.more ul{padding-left:18px}
pre{background:var(--code);border-radius:7px;padding:10px 12px;margin:4px 0;white-space:pre-wrap;
overflow-wrap:anywhere;max-height:340px;overflow:auto}
.note{border-left:3px solid var(--ask);padding:6px 12px;background:var(--code);border-radius:0 7px 7px 0;margin:8px 0}
.note.no{border-left-color:var(--refused)}.note b{font-weight:600}.hint{color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:4px 0;font-size:13.5px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
table{width:100%;border-collapse:collapse;font-size:14px}td,th{text-align:left;padding:8px 14px;
border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--soft);font-weight:500;font-size:13px}
tr:last-child td{border-bottom:0}td.mono{overflow-wrap:anywhere}
.file{margin:0 0 8px;overflow:hidden}.file>summary{cursor:pointer;padding:10px 14px}.file .count{color:var(--soft);font-size:13px}
.diff{margin:0;border-radius:0;border-top:1px solid var(--line);max-height:460px}
.diff span{display:block;padding:0 4px}.diff .a{background:var(--add);color:var(--add-ink)}
.diff .d{background:var(--del);color:var(--del-ink)}.diff .h{color:var(--soft)}
.empty{color:var(--soft);padding:18px 16px;margin:0}
footer{color:var(--soft);font-size:13px;margin-top:40px;overflow-wrap:anywhere}
@media(max-width:820px){.top{grid-template-columns:1fr}.numbers{grid-template-columns:repeat(2,1fr)}
.call>summary{grid-template-columns:1fr}.marks{justify-content:flex-start}.more{padding-left:14px}}
@media print{.filters{display:none}.call{break-inside:avoid}pre{max-height:none}}
"""

SCRIPT = """
const buttons=document.querySelectorAll('.filters button');
for(const button of buttons)button.addEventListener('click',()=>{
for(const other of buttons)other.setAttribute('aria-pressed',String(other===button));
for(const call of document.querySelectorAll('.call'))
call.hidden=button.value!==''&&!call.dataset.tags.split(' ').includes(button.value)});
const reveal=()=>{const found=document.getElementById(decodeURIComponent(location.hash.slice(1)));
if(found&&found.tagName==='DETAILS')found.open=true};
addEventListener('hashchange',reveal);reveal();
"""
