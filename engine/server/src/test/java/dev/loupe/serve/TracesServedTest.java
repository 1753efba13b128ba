package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.export.trace.GridReport;
import dev.loupe.export.trace.RowReport;
import dev.loupe.export.trace.TraceReport;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.TraceRequest;
import java.io.InputStream;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Traces over HTTP. */
@Timeout(300)
class TracesServedTest extends WorkbenchFixture {
  private static int[] ids() {
    return lone.tokens().stream().mapToInt(Token::id).toArray();
  }

  private static List<JsonObject> trace(String query) {
    return stream("trace?" + query);
  }

  private static List<JsonObject> stream(String part) {
    HttpResponse<String> response = served.send(served.to("/api/runs/" + id + "/" + part));
    assertEquals(200, response.statusCode(), response.body());
    String body = response.body();
    List<JsonObject> events = new ArrayList<>();
    for (String event : body.strip().split("\n\n", -1)) {
      events.add(JsonParser.parseString(event.substring("data: ".length())).getAsJsonObject());
    }
    return events;
  }

  /** But for how long it took. */
  private static JsonObject timeless(JsonObject trace) {
    trace.remove("seconds");
    return trace;
  }

  @Test
  void aTraceIsTheLibrarys() {
    List<JsonObject> events = trace("q=12");
    TraceRequest request = TraceRequest.of(Prompt.ids(ids())).at(12);
    assertEquals("effort", kind(events.getFirst()));
    assertEquals(
        served.loupe().traceEffort(request).layerRows(),
        events.getFirst().get("layer_rows").getAsLong());
    JsonObject first = events.get(1);
    assertEquals("tracing", kind(first));
    assertEquals("effects", first.get("phase").getAsString());
    assertTrue(first.get("done").getAsLong() < first.get("total").getAsLong());
    assertEquals("done", kind(events.getLast()));
    JsonObject expected =
        JsonParser.parseString(TraceReport.json(served.loupe().trace(request))).getAsJsonObject();
    assertEquals(timeless(expected), timeless(events.getLast().getAsJsonObject("trace")));
    JsonObject effort = json(id + "/effort?q=12");
    assertEquals(events.getFirst().get("cuts"), effort.get("cuts"));
  }

  @Test
  void itPatchesFromAnotherRun() {
    int[] other = ids();
    other[3] = 555;
    String second = name(events("{'ids': %s}".formatted(Arrays.toString(other))));
    List<JsonObject> events =
        trace("q=12&with=%s&against=runner-up&keep=50&most=4&mlps=true".formatted(second));
    TraceRequest request =
        TraceRequest.of(Prompt.ids(ids()))
            .at(12)
            .against(TraceRequest.RUNNER_UP)
            .patch(Prompt.ids(other))
            .keep(0.5)
            .most(4)
            .mlps(true);
    JsonObject expected =
        JsonParser.parseString(TraceReport.json(served.loupe().trace(request))).getAsJsonObject();
    assertEquals(timeless(expected), timeless(events.getLast().getAsJsonObject("trace")));
  }

  @Test
  void gridsAndNumbersAreTheLibrarys() {
    int[] other = ids();
    other[3] = 555;
    String second = name(events("{'ids': %s}".formatted(Arrays.toString(other))));
    TraceRequest request = TraceRequest.of(Prompt.ids(ids())).at(9).patch(Prompt.ids(other));
    assertEquals(
        JsonParser.parseString(
            GridReport.json(served.loupe().patch(request, PatchGrid.Kind.LAYERS))),
        stream("patch?q=9&with=" + second).getLast().get("grid"));
    assertEquals(
        JsonParser.parseString(
            GridReport.json(served.loupe().patch(request.target(44), new Part(4, 1)))),
        stream("patch?q=9&of=head&l=4&h=1&target=44&with=" + second).getLast().get("grid"));
    assertEquals(
        JsonParser.parseString(RowReport.json(served.loupe().row(Prompt.ids(ids()), 4, 2, 12, -1))),
        json(id + "/numbers?q=12&l=4&h=2"));
    served.get("/api/runs/" + id + "/patch?q=9").refused(400, "with is missing");
    served.get("/api/runs/%s/patch?q=2&with=%s".formatted(id, second)).refused(400, "the same");
    served.get("/api/runs/%s/patch?with=%s&of=all".formatted(id, second)).refused(400, "heads");
    served.get("/api/runs/" + id + "/numbers?l=6").refused(400, "l is not");
    String ablated = again(", " + ABLATED);
    served.get("/api/runs/" + ablated + "/numbers").refused(400, "as it is");
  }

  /** A client that goes away frees the turn to read a text, which the next trace waits for. */
  @Test
  void whoGoesAwayStopsIt() throws Exception {
    int[] many = new int[256];
    for (int i = 0; i < many.length; i++) {
      many[i] = i * 7 % 1000;
    }
    String long256 = name(events("{'ids': %s}".formatted(Arrays.toString(many))));
    HttpResponse<InputStream> response =
        served
            .client()
            .send(
                served.to("/api/runs/" + long256 + "/trace").build(), BodyHandlers.ofInputStream());
    String start = new String(response.body().readNBytes(40), UTF_8);
    assertTrue(start.startsWith("data: {"), start);
    response.body().close();
    assertEquals("done", kind(trace("q=3").getLast()));
  }

  @Test
  void whatIsWrongIsSaid() {
    String at = "/api/runs/" + id;
    for (String part : List.of("/trace?", "/effort?")) {
      served.get(at + part + "q=9999").refused(400, "q is not a whole number");
      served.get(at + part + "target=9999").refused(400, "target is not a whole number");
      served.get(at + part + "against=best").refused(400, "against");
      served.get(at + part + "ablation=best").refused(400, "zero, mean, patch");
      served.get(at + part + "ablation=patch").refused(400, "with");
      served.get(at + part + "mlps=2").refused(400, "true, false");
      served.get(at + part + "keep=0").refused(400, "from 1 to 99");
      served.get(at + part + "most=65").refused(400, "from 1 to 64");
      served.get(at + part + "with=xyz").refused(400, "with");
      served.get(at + part + "with=0123").refused(410, "not kept");
      served.get(at + part + "with=" + id).refused(400, "both texts are the same");
      served.get("/api/runs/0123" + part).refused(410, "not kept");
    }
    String ablated = again(", " + ABLATED);
    served.get("/api/runs/" + ablated + "/trace").refused(400, "as it is");
  }
}
