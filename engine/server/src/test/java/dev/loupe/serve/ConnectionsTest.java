package dev.loupe.serve;

import static dev.loupe.serve.BusyServer.WAITS;
import static dev.loupe.serve.BusyServer.awaitRunning;
import static dev.loupe.serve.BusyServer.options;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.serve.http.Places;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Bodies and connections that take too much or too long, and readers that do not read. */
@Timeout(200)
class ConnectionsTest {
  @Test
  void bodiesHaveABound() throws Exception {
    try (Served served = Served.start(options(4, 8, 60))) {
      String padding = "x".repeat(Server.MOST_BODY);
      served.complete("{'user': '%s'}".formatted(padding)).refused(413, "1048576");
      served
          .complete("{'max_tokens': 1, 'user': '%s'}".formatted(padding.substring(0, 1_000_000)))
          .has(200);
      try (Socket chunked =
          served.socket(
              "POST /v1/completions HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n")) {
        byte[] chunk = ("10000\r\n" + "x".repeat(0x10000) + "\r\n").getBytes(UTF_8);
        for (int i = 0; i < 20; i++) {
          chunked.getOutputStream().write(chunk);
        }
        assertEquals("HTTP/1.1 413", new String(chunked.getInputStream().readNBytes(12), UTF_8));
      }
      served.awaitIdle();
    }
  }

  @Test
  void slowAndSilentConnectionsEnd() throws Exception {
    try (Served served = Served.start(options(4, 1, 60), Duration.ofSeconds(1))) {
      List<Socket> sockets = new ArrayList<>();
      sockets.add(served.socket(""));
      sockets.add(served.socket("POST /v1/completions HT"));
      sockets.add(served.socket("GET /healthz HTTP/1.1\nHost: localhost\n\n")); // then nothing
      sockets.add(
          served.socket("POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: 99\n\n{"));
      Socket drips = served.socket("GET /healthz HTTP/1.1\nX: ");
      for (int i = 0; i < 30 && served.server().connections() > 0; i++) {
        Thread.sleep(100);
        try {
          drips.getOutputStream().write('x');
        } catch (IOException e) {
          break; // closed while it drips
        }
      }
      Served.await("all closed", () -> served.server().connections() == 0);
      for (Socket socket : sockets) {
        socket.getInputStream().readAllBytes(); // comes to an end
        socket.close();
      }
      drips.close();
      Socket waits;
      try (Places.Place place = served.server().places().enter()) {
        place.await(System.nanoTime() + 1_000_000_000L);
        waits = served.asking(WAITS);
        awaitRunning(served, 1);
        Thread.sleep(1500); // who has asked may wait longer
      }
      assertEquals("HTTP/1.1 200", new String(waits.getInputStream().readNBytes(12), UTF_8));
      waits.close();
    }
  }

  /** Java's client keeps a connection for 30 s, and the server must not close it just then. */
  @Test
  void aConnectionIsKeptLongerThanClientsKeepIt() throws Exception {
    Duration patience = Duration.ofMillis(300);
    try (Served served = Served.start(options(4, 1, 60), patience)) {
      long start = System.nanoTime();
      try (Socket socket = served.socket("GET /healthz HTTP/1.1\nHost: localhost\n\n")) {
        socket.getInputStream().readAllBytes(); // until the server closes
      }
      assertTrue(System.nanoTime() - start >= 2 * patience.toNanos(), "closed early");
    }
  }

  @Test
  void aReaderThatStopsReadingHoldsNothing() throws Exception {
    try (Served served = Served.start(options(4, 128, 60))) {
      try (Socket socket = new Socket()) {
        socket.setReceiveBufferSize(4096);
        socket.connect(
            new InetSocketAddress(InetAddress.getLoopbackAddress(), served.server().port()));
        String body =
            "{'max_tokens': 255, 'n': 128, 'stream': true, 'logprobs': 5}".replace('\'', '"');
        socket
            .getOutputStream()
            .write(
                "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                    .formatted(body.length(), body)
                    .getBytes(UTF_8));
        awaitRunning(served, 0);
        served.awaitIdle();
        Served.await("closed", () -> served.server().connections() == 0);
      }
      served.stream("{'max_tokens': 60, 'n': 128, 'stream': true, 'logprobs': 5}"); // to its end
    }
  }

  @Test
  void requestsThatFollowTooSoonAreNotAnswered() throws Exception {
    try (Served served = Served.start(options(4, 8, 60))) {
      String one = "GET /healthz HTTP/1.1\nHost: localhost\n\n";
      try (Socket socket = served.socket(one.repeat(5))) {
        String said = new String(socket.getInputStream().readAllBytes(), UTF_8);
        assertTrue(said.split("HTTP/1.1 200", -1).length <= 3, said);
        assertTrue(said.contains("connection: close") || said.endsWith("}"), said);
      }
      try (Socket socket = served.socket(one)) { // one after the other is fine
        for (int i = 0; i < 3; i++) {
          InputStream in = socket.getInputStream();
          StringBuilder said = new StringBuilder();
          while (!said.toString().endsWith("}")) {
            said.append((char) in.read());
          }
          assertTrue(said.toString().startsWith("HTTP/1.1 200"), said.toString());
          socket.getOutputStream().write(one.replace("\n", "\r\n").getBytes(UTF_8));
        }
      }
    }
  }
}
