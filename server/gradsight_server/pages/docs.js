// Starts Swagger UI. A file of its own, because the Content-Security-Policy allows no inline script.
window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  showExtensions: true,
  validatorUrl: null, // else it would ask a server outside
  presets: [window.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
