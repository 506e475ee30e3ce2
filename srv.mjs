import http from "node:http"; import fs from "node:fs"; import {createHash} from "node:crypto";
http.createServer((q,r)=>{ const p="/tmp/src-s"+q.url.split("?")[0]; let b; try{b=fs.readFileSync(p)}catch{r.writeHead(404).end();return}
const e='"'+createHash("sha256").update(b).digest("hex").slice(0,8)+'"'; if(q.headers["if-none-match"]===e){r.writeHead(304,{etag:e}).end();return} r.writeHead(200,{etag:e}).end(b)}).listen(8999,"127.0.0.1");
