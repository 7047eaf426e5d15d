// Asks for a key or token, reads the document with it and hands it to Swagger UI.
"use strict";

let credential = {};

function typed() {
  const value = document.getElementById("credential").value;
  const isKey = document.getElementById("kind").value === "key";
  return isKey ? { "X-Admin-Key": value } : { Authorization: "Bearer " + value };
}

// Only what goes to this sidecar gets the credential, and only if the page's own "Authorize" gave no other.
function withCredential(request) {
  const there = new URL(request.url, location.href);
  if (there.origin === location.origin) {
    request.headers = { ...credential, ...request.headers };
  }
  return request;
}

async function readDocument() {
  const answer = await fetch("openapi.json", { headers: credential, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) {
    throw new Error(body.detail);
  }
  return body;
}

async function show(event) {
  event.preventDefault();
  const problem = document.getElementById("problem");
  problem.textContent = "";
  try {
    credential = typed();
    const spec = await readDocument();
    window.SwaggerUIBundle({
      spec,
      dom_id: "#api",
      deepLinking: false,
      validatorUrl: null,
      requestInterceptor: withCredential,
    });
  } catch (error) {
    problem.textContent = "The API cannot be shown: " + error.message;
  }
}

document.getElementById("access").addEventListener("submit", show);
