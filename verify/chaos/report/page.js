"use strict";
// What moves on the page: a cursor that tells of its moment, and a closer look. Without it the page shows everything, still.
(() => {
  const chart = document.getElementById("chart");
  const readout = document.getElementById("readout");
  const data = JSON.parse(document.getElementById("data").textContent);
  const cursor = chart.querySelector(".cursor");
  const behind = chart.querySelector(".behind");
  const closest = 200;
  let from = 0, zoom = 1, pressed = null;

  const shareAt = event => {
    const box = behind.getBoundingClientRect();
    const seen = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return from + seen / zoom;
  };

  const leftOf = share => behind.offsetLeft + (share - from) * zoom * behind.offsetWidth;

  const tell = share => {
    const part = Math.min(Math.floor(share * data.acks.length), data.acks.length - 1);
    const faults = data.faults.filter(([begin, end]) => begin <= share && share <= end).map(fault => fault[2]);
    const latency = data.median[part] === null ? "" : `, half of them within ${data.median[part]} ms, 99 % within ${data.p99[part]} ms`;
    readout.textContent = `${(share * data.length).toFixed(2)} s: ${data.acks[part]} records/s acknowledged${latency}; ` +
      `${data.reads[part]} read; ${data.bad[part]} failed or unknown` + (faults.length ? `; during ${faults.join(", ")}` : "");
  };

  const look = (begin, end) => {
    zoom = Math.min(1 / Math.max(end - begin, 1e-9), closest);
    from = Math.min(Math.max(begin, 0), 1 - 1 / zoom);
    chart.style.setProperty("--zoom", zoom);
    chart.style.setProperty("--from", from);
    for (const label of chart.querySelectorAll(".band > span, .fault > span")) {
      const hidden = (from - parseFloat(label.parentElement.style.left) / 100) * zoom * behind.offsetWidth;
      label.style.marginLeft = `${Math.max(hidden, 0)}px`;
    }
    chart.dataset.level = Math.min(Math.floor(Math.log(zoom) / Math.log(6) + 0.2), Number(chart.dataset.levels) - 1);
  };

  chart.addEventListener("mousedown", event => {
    if (event.button === 0 && event.clientX >= behind.getBoundingClientRect().left) pressed = shareAt(event);
  });
  chart.addEventListener("mousemove", event => {
    const share = shareAt(event);
    const [begin, end] = pressed === null ? [share, share] : [Math.min(pressed, share), Math.max(pressed, share)];
    cursor.style.visibility = "visible";
    cursor.classList.toggle("drag", pressed !== null);
    cursor.style.left = `${leftOf(begin)}px`;
    cursor.style.width = `${leftOf(end) - leftOf(begin)}px`;
    tell(share);
  });
  window.addEventListener("mouseup", event => {
    if (pressed === null) return;
    const share = shareAt(event);
    const [begin, end] = [Math.min(pressed, share), Math.max(pressed, share)];
    pressed = null;
    cursor.style.visibility = "hidden";
    if ((end - begin) * zoom > 0.01) look(begin, end);
  });
  chart.addEventListener("mouseleave", () => { if (pressed === null) cursor.style.visibility = "hidden"; });
  chart.addEventListener("dblclick", () => look(0, 1));
})();
