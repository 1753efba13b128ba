package dev.loupe.serve;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.TooLongHttpHeaderException;
import io.netty.handler.codec.http.TooLongHttpLineException;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One client's connection, on the thread of the network. A request must be there, whole, within a
 * time from the connection's beginning or from the last answer: neither a connection that says
 * nothing nor one that says it slowly stays.
 *
 * <p>Requests that follow before the answer (pipelining) are not answered; the connection closes
 * after the first, and the client sends them again. No client in use does this.
 */
final class Connection extends SimpleChannelInboundHandler<FullHttpRequest> {
  private final Consumer<Exchange> handler;
  private final long patience; // seconds
  private @Nullable Exchange current;
  private @Nullable ScheduledFuture<?> deadline;
  private volatile boolean last;

  Connection(Consumer<Exchange> handler, long patience) {
    this.handler = handler;
    this.patience = patience;
  }

  @Override
  public void channelActive(ChannelHandlerContext channel) {
    await(channel);
  }

  @Override
  protected void channelRead0(ChannelHandlerContext channel, FullHttpRequest request) {
    if (current != null) {
      last = true;
      return;
    }
    if (deadline != null) {
      deadline.cancel(false);
    }
    Exchange exchange = new Exchange(channel, this, request);
    current = exchange;
    @Nullable Throwable malformed = request.decoderResult().cause();
    if (malformed == null) {
      handler.accept(exchange);
      return;
    }
    last = true; // where the next request begins is not known
    int status =
        malformed instanceof TooLongHttpLineException
            ? 414
            : malformed instanceof TooLongHttpHeaderException ? 431 : 400;
    exchange.send(
        ApiException.invalid(status, null, "this is no HTTP request, or its headers are too long"),
        Map.of());
  }

  @Override
  public void channelInactive(ChannelHandlerContext channel) {
    if (deadline != null) {
      deadline.cancel(false);
    }
    if (current != null) {
      current.cancel();
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext channel, Throwable cause) {
    ChannelFuture _ = channel.close(); // a reset, most likely; channelInactive does the rest
  }

  /** Whether another request may follow on this connection. */
  boolean mayGoOn() {
    return !last;
  }

  /** The answer is on its way: what arrives from here on is another request. */
  void answered(ChannelHandlerContext channel) {
    current = null;
    if (channel.channel().isActive()) {
      await(channel);
    }
  }

  /** Closes once what is being answered is sent. */
  void closeSoon(Channel channel) {
    channel
        .eventLoop()
        .execute(
            () -> {
              last = true;
              if (current == null) { // after what is still to be written
                channel
                    .writeAndFlush(Unpooled.EMPTY_BUFFER)
                    .addListener(ChannelFutureListener.CLOSE);
              }
            });
  }

  private void await(ChannelHandlerContext channel) {
    Runnable close =
        () -> {
          ChannelFuture _ = channel.close();
        };
    deadline = channel.executor().schedule(close, patience, TimeUnit.SECONDS);
  }
}
